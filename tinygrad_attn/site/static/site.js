/* A picture that had to be made smaller than it is gets a button that shows it as it is. */
const { larger, smaller } = document.currentScript.dataset;
for (const picture of document.querySelectorAll("figure.tg-plot, figure.tg-graph")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = larger;
  button.addEventListener("click", () => {
    button.textContent = picture.toggleAttribute("data-large") ? smaller : larger;
    button.setAttribute("aria-pressed", picture.hasAttribute("data-large"));
  });
  picture.prepend(button);
  const wide = parseFloat(picture.style.getPropertyValue("--wide"));
  new ResizeObserver(() => { button.hidden = !picture.hasAttribute("data-large") && picture.clientWidth > 0.8 * wide; })
    .observe(picture);
}
