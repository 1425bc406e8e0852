/* Words without their accents, as the index of the Portuguese pages has them: see extension.py. */
const Accented = window.Stemmer;
const plain = word => word.normalize("NFD").replace(/\p{M}/gu, "");
window.Stemmer = function () {
  const stemmer = new Accented();
  this.stemWord = word => plain(stemmer.stemWord(plain(word)));
};
