"""Files: what is saved comes back bit for bit, others read it, and what was damaged, or made to harm, is refused."""

import contextlib
import errno
import io
import os
import pickle
import resource
import stat
import struct
import sys
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygrad_attn import ShapeError, Tensor, nn, optim, serialize
from tinygrad_attn.serialize import load, save

KINDS = (".npz", ".safetensors")
each_kind = pytest.mark.parametrize("kind", KINDS)

NAMES = ("", ".", "..", "../../x", "/etc/x", "a", "b", "a/b", "a/b'", "'", "''", "file", "allow_pickle", "x", "x.npy",
         "x.npy.npy", "tinygrad_attn", "tinygrad_attn.json", "array", "dict", "0", "größe", "日本", "😀", " ", "a\nb",
         "C:\\x", "con", "weight.", "w" * 300)
VALUES = (0, -1, 2 ** 53 + 1, -(2 ** 200), 10 ** 4000, True, False, None, 0.1, -0.0, 5e-324, float("inf"),
          -float("inf"), float("nan"), "", "\ud800", "\0", "NaN", "'\"\\")
DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split()


def bits(x):
    """What must agree, as something that can be compared with ==."""
    if isinstance(x, np.ndarray):
        return "array", x.dtype.str, x.shape, x.tobytes()
    if isinstance(x, float):
        return "float", struct.pack("<d", x) if x == x else "nan"
    if isinstance(x, dict):
        return "dict", [(key, bits(item)) for key, item in x.items()]
    return (type(x).__name__, [bits(item) for item in x]) if isinstance(x, (list, tuple)) else (type(x).__name__, x)


def expected(x, kind):
    """The same tree, with an array for each scalar, and, in .safetensors, in the machine's order of bytes."""
    if isinstance(x, (np.ndarray, np.generic)):
        x = np.asarray(x)
        return x if kind == ".npz" else x.astype(x.dtype.newbyteorder("="))
    if isinstance(x, dict):
        return {key: expected(item, kind) for key, item in x.items()}
    return type(x)(expected(item, kind) for item in x) if isinstance(x, (list, tuple)) else x


def again(state, kind):
    with tempfile.TemporaryDirectory() as folder:
        save(f"{folder}/file{kind}", state)
        assert os.listdir(folder) == [f"file{kind}"]        # nothing beside it, whatever names say
        return load(f"{folder}/file{kind}")


# ---------------------------------------------------------------------------------------------------- round trips

@st.composite
def arrays(draw):
    """Any bits, so also NaNs of every sign and payload, in every layout."""
    dtype = np.dtype(draw(st.sampled_from("<>")) + draw(st.sampled_from(DTYPES[1:])))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    n = int(np.prod(shape, dtype=int)) * dtype.itemsize
    array = np.frombuffer(draw(st.binary(min_size=n, max_size=n)), dtype).reshape(shape)
    layout = draw(st.sampled_from(["C", "F", "strided", "reversed", "bool", "scalar"]))
    if layout == "strided" and shape:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if layout == "scalar":
        return array.ravel()[0] if array.size else array[..., None]
    if layout == "bool":
        return array.astype(np.uint8) % 2 == 1 if dtype.kind in "iu" else np.zeros(shape, bool)
    return array.T if layout == "reversed" else np.asarray(array, order=layout if layout == "F" else "C")


names = st.sampled_from(NAMES) | st.text(max_size=5).filter(lambda name: "\0" not in name)
leaves = (arrays() | st.sampled_from(VALUES) | st.integers() | st.floats() | st.text(max_size=9))
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
                     | st.dictionaries(names, inner, max_size=4), max_leaves=12)
ONES = np.ones(1)


@each_kind
@settings(deadline=None, max_examples=150)
@given(state=st.dictionaries(names, trees, max_size=5))
@example(state={"a/b": ONES, "a": {"b": ONES * 2, "b'": ONES * 3}, "a/b'": ONES * 4, "a/b''": ONES * 5, "n": 1})
@example(state={"x": ONES, "x.npy": ONES * 2, "file": ONES * 3, "tinygrad_attn": ONES * 4, "tinygrad_attn.json": ONES})
@example(state={name: np.full(2, i) for i, name in enumerate(NAMES)})
@example(state={name: [np.full(2, i), i] for i, name in enumerate(NAMES)})
@example(state={"a": [np.float32(1), ()], "b": ({}, [], np.zeros((0, 3))), "values": list(VALUES)})
def test_a_tree_comes_back_bit_for_bit_whatever_its_names(kind, state):
    flat = all(isinstance(value, (np.ndarray, np.generic)) for value in state.values())
    back, wanted = again(state, kind), expected(state, kind)
    if flat and kind == ".safetensors":         # which sorts arrays, the widest first
        assert back.keys() == wanted.keys()
        back = {key: back[key] for key in wanted}
    assert bits(back) == bits(wanted)


@each_kind
@pytest.mark.parametrize("dtype", [*DTYPES, ">f8", ">i2", ">f2", "c8", "c16"])
def test_an_array_of_each_dtype_comes_back_in_each_layout(kind, dtype):
    dtype = np.dtype(dtype)
    if dtype == np.complex128 and kind == ".safetensors":
        with pytest.raises(TypeError, match=r"m/w is complex128, which .safetensors has not; .npz does"):
            again({"m": {"w": np.ones(2, dtype)}}, kind)
        return
    block = np.random.default_rng(0).integers(0, 2, (3, 4, 2)).astype(dtype)
    for array in (block, np.asfortranarray(block), block.T, block[::2, 1:, ::-1], block[0, 0, 0], block[:0],
                  np.broadcast_to(block[0, 0], (5, 2)), block.reshape(1, -1, order="F")):
        back = again({"w": array}, kind)["w"]
        assert bits(back) == bits(expected(array, kind))
        assert type(back) is np.ndarray


@each_kind
def test_tensors_are_saved_as_their_arrays_and_loaded_arrays_can_be_written_to(kind):
    w = Tensor([1.0, 2.0], requires_grad=True)
    back = again({"w": w, "y": w * 2, "z": Tensor(3.0), "p": nn.Parameter([4.0], dtype=np.float32)}, kind)
    assert {name: (x.tolist(), x.dtype.str) for name, x in back.items()} == {
        "w": ([1.0, 2.0], "<f8"), "y": ([2.0, 4.0], "<f8"), "z": (3.0, "<f8"), "p": ([4.0], "<f4")}
    for x in back.values():
        x += 1
    assert back["w"].tolist() == [2.0, 3.0]


@each_kind
def test_mappings_and_kinds_of_numbers_become_plain_ones(kind):
    class Many(dict):
        pass
    back = again({"a": Many(b=1), "n": np.int8(3), "t": np.True_}, kind)
    assert type(back["a"]) is dict
    assert (back["n"].dtype, back["n"].shape, back["t"].dtype) == (np.int8, (), bool)


@each_kind
def test_an_empty_state_comes_back(kind):
    assert again({}, kind) == {}
    assert again({"": {}}, kind) == {"": {}}


# -------------------------------------------------------------------------------------------------- other programs

STATE = {"w": np.arange(6.0).reshape(2, 3).T, "layers.0.bias": np.array([1, 2], np.float32), "n": np.array(7)}


def assert_same(found, wanted=STATE):
    assert {name: bits(array) for name, array in found.items()} == {name: bits(x) for name, x in wanted.items()}


def test_numpy_reads_what_we_write(tmp_path):
    save(tmp_path / "a.npz", STATE)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert sorted(file.files) == sorted(STATE)
        assert_same(file)
    save(tmp_path / "b.npz", {"model": STATE, "step": 3})
    with np.load(tmp_path / "b.npz", allow_pickle=False) as file:
        assert_same({name: file[f"model/{name}"] for name in STATE})


def test_safetensors_reads_what_we_write(tmp_path):
    save(tmp_path / "a.safetensors", STATE)
    assert_same(safetensors.numpy.load_file(tmp_path / "a.safetensors"))
    save(tmp_path / "b.safetensors", {"model": STATE, "step": 3})
    assert_same(safetensors.numpy.load_file(tmp_path / "b.safetensors"), {f"model/{k}": x for k, x in STATE.items()})


def test_a_state_dict_is_in_the_file_under_its_own_names_and_nothing_else_is(tmp_path):
    save(tmp_path / "a.npz", STATE)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.namelist() == [f"{name}.npy" for name in STATE]
    save(tmp_path / "a.safetensors", STATE)
    with safetensors.safe_open(tmp_path / "a.safetensors", "np") as file:
        assert file.metadata() is None


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_we_read_what_numpy_writes(tmp_path, write):
    write(tmp_path / "a.npz", np.arange(3), **STATE)
    assert_same(load(tmp_path / "a.npz"), {"arr_0": np.arange(3), **STATE})


def test_we_read_what_safetensors_writes(tmp_path):
    contiguous = {name: np.array(x, order="C", ndmin=x.ndim) for name, x in STATE.items()}
    safetensors.numpy.save_file(contiguous, tmp_path / "a.safetensors", metadata={"format": "np", "author": "x"})
    assert_same(load(tmp_path / "a.safetensors"))


def as_safetensors(header: str, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header.encode())) + header.encode() + data


def test_bfloat16_becomes_float32_without_loss(tmp_path):
    header = '{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}'
    upper = [0x3F80, 0xC000, 0x3EAB, 0x7F80, 0x7FC0, 0x8000]         # 1, −2, 0.333984375, ∞, NaN, −0
    (tmp_path / "a.safetensors").write_bytes(as_safetensors(header, struct.pack("<6H", *upper)))
    w = load(tmp_path / "a.safetensors")["w"]
    assert (w.dtype, w.shape) == (np.float32, (2, 3))
    np.testing.assert_array_equal(w, np.array([[1, -2, 0.333984375], [np.inf, np.nan, -0.0]], np.float32))
    assert np.signbit(w[1, 2])


def test_a_dtype_that_numpy_has_not_is_named(tmp_path):
    header = '{"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    (tmp_path / "a.safetensors").write_bytes(as_safetensors(header, b"\0\0"))
    with pytest.raises(ValueError, match=r"a.safetensors: 'w' has dtype F8_E4M3, which NumPy has not"):
        load(tmp_path / "a.safetensors")


def test_we_read_what_pytorch_writes(torch, tmp_path):
    from safetensors.torch import save_file
    state = {"w": torch.arange(6.0).reshape(2, 3), "half": torch.tensor([1.5], dtype=torch.float16),
             "brain": torch.tensor([1 / 3, -2.0, 3e38], dtype=torch.bfloat16), "n": torch.tensor(7),
             "flags": torch.tensor([True, False]), "bytes": torch.tensor([255], dtype=torch.uint8),
             "none": torch.zeros(0, 3, dtype=torch.float64)}
    save_file(state, tmp_path / "a.safetensors", metadata={"format": "pt"})
    found = load(tmp_path / "a.safetensors")
    assert_same(found, {name: (x.float() if x.dtype == torch.bfloat16 else x).numpy() for name, x in state.items()})


def test_pytorch_reads_what_we_write(torch, tmp_path):
    from safetensors.torch import load_file
    model = nn.Linear(3, 2, rng=0)
    save(tmp_path / "a.safetensors", model.state_dict())
    theirs = torch.nn.Linear(3, 2, dtype=torch.float64)
    theirs.load_state_dict(load_file(tmp_path / "a.safetensors"))
    x = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(model(x).numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-14)


# ------------------------------------------------------------------------------------------------ a model's weights

def test_SE_02_what_does_not_fit_is_listed_and_nothing_is_loaded(tmp_path):
    save(tmp_path / "a.npz", nn.Linear(5, 7, rng=0).state_dict() | {"more": np.ones(2)})
    model = nn.Linear(2, 3, rng=1)
    before = model.state_dict()
    with pytest.raises(ValueError, match=r"weight: expected shape \(3, 2\), found \(7, 5\)\n"
                                         r"  bias: expected shape \(3,\), found \(7,\)\n  more: unexpected"):
        model.load_state_dict(load(tmp_path / "a.npz"))
    assert_same(model.state_dict(), before)
    with pytest.raises(ValueError, match=r"bias: expected shape \(3,\), found \(1,\)"):        # which would broadcast
        model.load_state_dict({"weight": np.ones((3, 2)), "bias": np.ones(1)})
    assert_same(model.state_dict(), before)


@each_kind
def test_SE_04_tied_weights_and_missing_biases_come_back_as_they_were(kind):
    class Tied(nn.Module):
        def __init__(self, seed):
            self.tokens, self.out = nn.Embedding(5, 3, rng=seed), nn.Linear(3, 5, bias=False, rng=seed)
            self.out.weight = self.tokens.weight
    a, b = Tied(0), Tied(1)
    b.load_state_dict(again(a.state_dict(), kind))
    assert b.out.weight is b.tokens.weight
    assert b.out.bias is None
    assert_same(b.state_dict(), a.state_dict())


@each_kind
def test_a_checkpoint_holds_a_model_its_optimiser_and_a_generator(kind):
    rng = np.random.default_rng(3)
    rng.random(5)
    model = nn.Linear(2, 2, rng=0)
    optimiser = optim.AdamW(model.parameters(), 0.1)
    model(np.ones((1, 2))).sum().backward()
    optimiser.step()
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "rng": rng.bit_generator.state}
    back = again(state, kind)
    assert bits(back) == bits(state)
    other = np.random.default_rng()
    other.bit_generator.state = back["rng"]         # its state is an integer of 128 bits
    assert other.random() == rng.random()


# ----------------------------------------------------------------------------------- written whole, or not at all

@pytest.fixture
def old(tmp_path):
    """A folder with a file of each kind, and what they hold."""
    for kind in KINDS:
        save(tmp_path / f"a{kind}", {"old": np.arange(3.0), "n": 1})
    return tmp_path


def assert_untouched(folder):
    assert sorted(os.listdir(folder)) == ["a.npz", "a.safetensors"]
    for kind in KINDS:
        assert bits(load(folder / f"a{kind}")) == bits({"old": np.arange(3.0), "n": 1})


@each_kind
@pytest.mark.parametrize("crash", [OSError(errno.EIO, "input/output error"), KeyboardInterrupt(), MemoryError()],
                         ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["replace", "chmod", "write"])
def test_a_crash_while_writing_leaves_the_old_file_and_no_other(old, monkeypatch, kind, crash, where):
    def crashes(*args):
        raise crash
    if where == "write":
        class Half(io.FileIO):
            def write(self, content):
                super().write(content[:len(content) // 2])
                raise crash
        monkeypatch.setattr(os, "fdopen", lambda descriptor, mode: Half(descriptor, "w"))
    else:
        monkeypatch.setattr(os, where, crashes)
    for name in ("a", "new"):
        with pytest.raises(type(crash)):
            save(old / f"{name}{kind}", {"new": np.zeros(100)})
    monkeypatch.undo()
    assert_untouched(old)


@each_kind
def test_where_nothing_more_can_be_written_the_old_file_stays(old, kind):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))         # as on a full disk
    try:
        with pytest.raises(OSError, match="too large"):
            save(old / f"a{kind}", {"new": np.zeros(1 << 18)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_untouched(old)


@each_kind
def test_what_cannot_be_saved_leaves_the_old_file(old, kind):
    with pytest.raises(TypeError):
        save(old / f"a{kind}", {"fits": np.ones(3), "does not": {1, 2}})
    assert_untouched(old)


def test_the_file_has_the_permissions_that_the_old_one_had_or_those_of_a_new_one(tmp_path):
    path, plain = tmp_path / "a.npz", tmp_path / "plain"
    plain.write_text("")
    save(path, {})
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o640)
    save(path, {"n": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link_and_the_file_that_it_names_is_written(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "last.npz").symlink_to("runs/1.npz")
    for step in (1, 2):
        save(tmp_path / "last.npz", {"step": step})
        assert (tmp_path / "last.npz").is_symlink()
        assert load(tmp_path / "runs" / "1.npz") == {"step": step}
    assert os.listdir(tmp_path / "runs") == ["1.npz"]


@contextlib.contextmanager
def ordinary_user():
    """Root may write anywhere, so be somebody else."""
    if os.geteuid():
        yield
        return
    try:
        os.setresuid(65534, 65534, 0)
    except OSError:
        pytest.skip("root that cannot become somebody else")
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def open_folder():
    """Where somebody else can go as well, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@each_kind
def test_a_folder_that_may_not_be_written_to_is_a_permission_error_with_the_path(open_folder, kind):
    folder = open_folder / "closed"
    folder.mkdir(mode=0o555)
    with ordinary_user(), pytest.raises(PermissionError, match=f"closed/a{kind}"):
        save(folder / f"a{kind}", {"n": 1})
    assert os.listdir(folder) == []


@each_kind
def test_a_file_that_may_not_be_written_to_is_a_permission_error_though_its_folder_may(open_folder, kind):
    path = open_folder / f"a{kind}"
    save(path, {"old": np.ones(1)})
    path.chmod(0o444)
    open_folder.chmod(0o777)
    with ordinary_user(), pytest.raises(PermissionError, match=f"a{kind}"):
        save(path, {"new": np.ones(1)})
    assert os.listdir(open_folder) == [f"a{kind}"]
    assert list(load(path)) == ["old"]


@each_kind
def test_a_file_that_may_not_be_read_is_a_permission_error_with_the_path(open_folder, kind):
    path = open_folder / f"a{kind}"
    save(path, {"n": 1})
    path.chmod(0)
    with ordinary_user(), pytest.raises(PermissionError, match=f"a{kind}"):
        load(path)


@each_kind
def test_missing_files_and_folders_are_named(tmp_path, kind):
    with pytest.raises(FileNotFoundError, match=f"none{kind}"):
        load(tmp_path / f"none{kind}")
    with pytest.raises(FileNotFoundError, match="no/such"):
        save(tmp_path / "no" / "such" / f"a{kind}", {})
    (tmp_path / f"folder{kind}").mkdir()
    for attempt in (load, lambda path: save(path, {})):
        with pytest.raises(IsADirectoryError, match=f"folder{kind}"):
            attempt(tmp_path / f"folder{kind}")
    assert os.listdir(tmp_path) == [f"folder{kind}"]


# ---------------------------------------------------------------------------------------------- what is no file of ours

@pytest.mark.parametrize("name", ["a", "a.pt", "a.npy", "a.npz.gz", "a.NPZ"])
def test_another_ending_is_an_error_that_names_those_there_are(tmp_path, name):
    for attempt in (load, lambda path: save(path, {})):
        with pytest.raises(ValueError, match=f"{name!r} ends in neither .safetensors nor .npz"):
            attempt(tmp_path / name)
    assert os.listdir(tmp_path) == []


CHECKPOINT = {"model": {"w": np.arange(3.0), "b": np.array([True])}, "step": 3, "more": (1, [2.5])}


def refused(path: Path) -> bool:
    """Whether a ValueError that names the file refused it. Any other error fails."""
    error = None
    try:
        load(path)
    except ValueError as caught:
        error = caught
    assert error is None or str(path) in str(error)
    return error is not None


def refused_with(path: Path, wrong: list[tuple[int, int]]) -> list[bool]:
    """Whether it is refused with this byte at this place, for each; one file, since to make one takes long."""
    content, found = path.read_bytes(), []
    with path.open("r+b") as file:
        for i, value in wrong:
            os.pwrite(file.fileno(), bytes([value]), i)
            found.append(refused(path))
            os.pwrite(file.fileno(), content[i:i + 1], i)
    return found


@each_kind
def test_a_file_that_was_cut_off_anywhere_is_an_error_with_its_path(tmp_path, kind):
    path = tmp_path / f"a{kind}"
    save(path, CHECKPOINT)
    assert not refused(path)
    for n in reversed(range(path.stat().st_size)):
        os.truncate(path, n)
        assert refused(path)


@each_kind
def test_a_file_with_one_wrong_byte_is_an_error_with_its_path_or_is_read(tmp_path, kind):
    path = tmp_path / f"a{kind}"
    save(path, CHECKPOINT)
    content = path.read_bytes()
    wrong = [(i, value) for i, byte in enumerate(content)
             for value in sorted({0, 1, 10, 34, 255, byte ^ 1, byte ^ 128, (byte + 1) % 256} - {byte})]
    assert sum(refused_with(path, wrong)) > len(wrong) / 4
    assert not refused(path)


def test_a_wrong_byte_in_a_compressed_array_is_always_seen(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, weight=np.random.default_rng(0).normal(size=50))
    content = path.read_bytes()
    start, end = content.index(b"weight.npy") + 30, content.index(b"PK\1\2")
    assert all(refused_with(path, [(i, content[i] ^ flip) for i in range(start + 1, end - 1) for flip in (1, 6, 255)]))


@pytest.mark.parametrize("field", ["data", "name"])
def test_a_wrong_byte_in_an_array_of_a_zip_or_in_its_name_is_always_seen(tmp_path, field):
    """Each member has a checksum, and its name twice."""
    path = tmp_path / "a.npz"
    save(path, {"weight": np.arange(4.0)})
    content = path.read_bytes()
    start, length = (content.index(b"\x93NUMPY"), 160) if field == "data" else (content.index(b"weight"), 6)
    assert all(refused_with(path, [(i, content[i] ^ 4) for i in range(start, start + length)]))


PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def as_zip(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


FOREIGN = {
    "nothing": (b"", dict.fromkeys(KINDS, "it is empty")),
    "a picture": (PNG, {kind: f"it is cut off, damaged, or no {kind} file" for kind in KINDS}),
    "a text": (b"import os\n" * 20, {kind: f"it is cut off, damaged, or no {kind} file" for kind in KINDS}),
    "zeros": (bytes(500), {kind: f"it is cut off, damaged, or no {kind} file" for kind in KINDS}),
    "one array": (npy(np.ones(3)), dict.fromkeys(KINDS, "a single NumPy array, .npy")),
    "a pickle": (pickle.dumps({"w": [1.0]}), dict.fromkeys(KINDS, "it is pickled, and a pickle can run anything")),
    "another zip": (as_zip({"hello.txt": b"hello"}), {
        ".npz": "'hello.txt' is no array; it is a zip, but no .npz", ".safetensors": "a zip, as .npz is"}),
    "a zip of no arrays": (as_zip({"w.npy": b"hello"}), {".npz": "'w' is no array", ".safetensors": "a zip"})}


@each_kind
@pytest.mark.parametrize("content", FOREIGN)
def test_a_foreign_file_is_an_error_that_says_what_it_is(tmp_path, kind, content):
    path = tmp_path / f"a{kind}"
    path.write_bytes(FOREIGN[content][0])
    with pytest.raises(ValueError, match=FOREIGN[content][1][kind]) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_each_kind_is_refused_under_the_name_of_the_other(old):
    for kind, other, said in ((*KINDS, "a zip, as .npz is, and as PyTorch's .pt is"), (*KINDS[::-1], "no .npz file")):
        (old / f"b{other}").write_bytes((old / f"a{kind}").read_bytes())
        with pytest.raises(ValueError, match=said):
            load(old / f"b{other}")


# -------------------------------------------------------------------------------------- what was made to do harm

class Payload:
    """Unpickling it makes a file."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return open, (self.trace, "w")


def objects(trace):
    array = np.empty(1, dtype=object)
    array[0] = Payload(trace)
    return array


def structured(trace):
    array = np.zeros(1, dtype=[("name", "O"), ("n", int)])
    array["name"] = objects(trace)
    return array


@pytest.mark.parametrize("make", [objects, structured])
def test_SE_01_a_pickled_array_is_refused_and_nothing_is_run(tmp_path, make):
    trace = tmp_path / "trace"
    np.savez(tmp_path / "a.npz", fine=np.ones(2), w=make(trace))
    with pytest.raises(ValueError, match=r"a\.npz: 'w' is an array of pickled objects"):
        load(tmp_path / "a.npz")
    assert not trace.exists()
    with np.load(tmp_path / "a.npz", allow_pickle=True) as file:        # which would have done it
        file["w"].ravel()[0]["name"].close() if make is structured else file["w"][0].close()
    assert trace.exists()


@each_kind
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_SE_01_a_pickle_under_another_name_is_refused_and_nothing_is_run(tmp_path, kind, protocol):
    trace, path = tmp_path / "trace", tmp_path / f"a{kind}"
    path.write_bytes(pickle.dumps(Payload(trace), protocol))
    with pytest.raises(ValueError, match="pickle" if protocol else "no .* file"):      # protocol 0 looks like any text
        load(path)
    assert not trace.exists()
    pickle.loads(path.read_bytes()).close()                             # which would have done it
    assert trace.exists()


@each_kind
def test_SE_01_a_pickle_in_a_zip_as_pytorch_has_it_is_refused_and_nothing_is_run(tmp_path, kind):
    trace, path = tmp_path / "trace", tmp_path / f"a{kind}"
    path.write_bytes(as_zip({"archive/data.pkl": pickle.dumps(Payload(trace)), "archive/version": b"3\n"}))
    with pytest.raises(ValueError, match=r"it is a zip, but no \.npz|a zip, as \.npz is, and as PyTorch's \.pt is"):
        load(path)
    assert not trace.exists()


@each_kind
@pytest.mark.parametrize("zipped", [True, False])
def test_SE_01_a_file_of_torch_save_is_refused(torch, tmp_path, kind, zipped):
    path = tmp_path / f"a{kind}"
    torch.save({"w": torch.ones(2), "trace": Payload(tmp_path / "trace")}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"a zip, as|it is a zip, but no|it is pickled"):
        load(path)
    assert not (tmp_path / "trace").exists()


def with_header(text: str, data: bytes = bytes(16)) -> bytes:
    """A .npz whose one array, w, says of itself what `text` says."""
    return as_zip({"w.npy": b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + data})


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }\n"


@pytest.mark.parametrize(("header", "said"), [
    (HEADER % "(1000000000000000,)", r"'w' says that it is \(1000000000000000,\) of float64, and has 16 bytes"),
    (HEADER % "(1000000000, 1000000000)", "and has 16 bytes"), (HEADER % "(1,)", "and has 16 bytes"),
    (HEADER % "(3,)", "and has 16 bytes"), (HEADER % "(-2,)", "and has 16 bytes"),
    (HEADER % "2", "'w' is no array"), (HEADER % "(2.0,)", "'w' is no array"), (HEADER % "(2,)" + " " * 20000, "large"),
    ("{}", "'w' is no array"), ("__import__('os').abort()", "'w' is no array"), ("[" * 150 + "]" * 150, "no array"),
    ("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "pickled objects"),
    ("{'descr': '<q9', 'fortran_order': False, 'shape': (2,)}", "'w' is no array"),
    ("{'descr': '<f8', 'fortran_order': 1, 'shape': (2,)}", "'w' is no array")])
def test_an_array_in_a_zip_that_lies_about_itself_is_refused(tmp_path, header, said):
    path = tmp_path / "a.npz"
    path.write_bytes(with_header(HEADER % "(2,)"))
    assert load(path)["w"].tolist() == [0.0, 0.0]
    path.write_bytes(with_header(header))
    with pytest.raises(ValueError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)


ENTRY = '{"w":{"dtype":"%s","shape":%s,"data_offsets":%s}}'


@pytest.mark.parametrize("header", [
    ENTRY % ("F64", [10 ** 15], [0, 8 * 10 ** 15]), ENTRY % ("F64", [10 ** 15], [0, 16]),
    ENTRY % ("F64", [2 ** 40, 2 ** 40], [0, 16]), ENTRY % ("F64", [-2], [0, 16]), ENTRY % ("F64", [2], [8, 24]),
    ENTRY % ("F64", [1], [0, 8]), ENTRY % ("F64", [2], [16, 0]), ENTRY % ("F63", [2], [0, 16]), "[]", "{", "null",
    '{"w":' + "[" * 10000, '{"__metadata__":{"tinygrad_attn":3}}'])
def test_a_header_of_safetensors_that_lies_is_refused(tmp_path, header):
    path = tmp_path / "a.safetensors"
    path.write_bytes(as_safetensors(ENTRY % ("F64", [2], [0, 16]), bytes(16)))
    assert load(path)["w"].tolist() == [0.0, 0.0]
    path.write_bytes(as_safetensors(header, bytes(16)))
    with pytest.raises(ValueError, match=r"it is cut off, damaged, or no \.safetensors file") as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("length", [0, 2, 100 << 20, 2 ** 63, 2 ** 64 - 1])
def test_a_header_longer_than_its_file_is_refused(tmp_path, length):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{" + bytes(20))
    with pytest.raises(ValueError, match=r"a\.safetensors: it is cut off"):
        load(path)


TREES = ["", "{", "[]", "3", '"w"', '{"array": "none"}', '{"array": ["w"]}', '{"list": 3}', '{"list": {"a": 1}}',
         '{"dict": []}', '{"unknown": 1}', '{"value": 1, "list": []}', '{"value": %s}' % ("9" * 5000),
         '{"list":[' * 5000]


@each_kind
@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree[:20])
def test_a_structure_that_was_tampered_with_is_refused(tmp_path, kind, tree):
    path = tmp_path / f"a{kind}"
    w = np.ones(2)
    path.write_bytes(as_zip({"w.npy": npy(w), "tinygrad_attn.json": tree.encode()}) if kind == ".npz" else
                     safetensors.numpy.save({"w": w}, {"tinygrad_attn": tree}))
    with pytest.raises(ValueError, match="what it says of its own structure is damaged") as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_structure_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(as_zip({"tinygrad_attn.json": b'{"value": "\xff"}'}))
    with pytest.raises(ValueError, match=r"a\.npz: it is cut off, damaged, or no \.npz file"):
        load(tmp_path / "a.npz")


def test_a_zip_that_swells_is_refused_before_it_does(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, w=np.zeros(1 << 20))
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match=r"a\.npz: it holds 8,388,\d+ bytes, more than max_bytes=1,000,000; if"):
        load(path, max_bytes=1_000_000)
    assert load(path)["w"].size == 1 << 20


@each_kind
def test_a_file_larger_than_max_bytes_is_refused_before_it_is_read(tmp_path, monkeypatch, kind):
    path = tmp_path / f"a{kind}"
    save(path, {"w": np.zeros(1000)})
    size = path.stat().st_size
    load(path, max_bytes=size)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read"))
    with pytest.raises(ValueError, match=f"it holds {size:,} bytes, more than max_bytes={size - 1:,}"):
        load(path, max_bytes=size - 1)
    os.truncate(path, serialize.MAX_BYTES + 1)              # it has holes, and takes no room
    with pytest.raises(ValueError, match="more than max_bytes=8,589,934,592"):
        load(path)


# ------------------------------------------------------------------------------------------- what cannot be saved

@each_kind
@pytest.mark.parametrize(("state", "said"), [
    ({"a": [{"b": {1, 2}}]}, "a/0/b is a set; what can be saved are arrays, numbers, strings, None, and lists"),
    ({"a": b"x"}, "a is a bytes"), ({"a": (1, 2j)}, "a/1 is a complex"), ({"f": again}, "f is a function"),
    ({"a": {"rng": np.random.default_rng(0)}}, "a/rng is a Generator"), ({"m": nn.ReLU()}, "m is a ReLU"),
    ({"a": np.array([None])}, "a is an array of dtype object; only numbers can be saved"),
    ({"a": {"b": np.array(["x"])}}, "a/b is an array of dtype <U1"), ({"a": np.array(b"x")}, r"a is an array of .*S1"),
    ({"a": np.zeros(2, "M8[s]")}, "a is an array of dtype datetime64"),
    ({"a": np.zeros(2, [("x", float)])}, r"a is an array of dtype \[\('x'"),
    ({"a": {1: 2}}, "a has the key 1; keys must be strings"), ({None: 2}, "the state has the key None"),
    ([1.0], "a state is a dict, as model.state_dict.. gives, not a list"), (np.ones(3), "not a ndarray"),
    (nn.Linear(1, 1), "not a Linear")])
def test_what_cannot_be_saved_is_an_error_that_names_where_it_is(tmp_path, kind, state, said):
    with pytest.raises(TypeError, match=said):
        save(tmp_path / f"a{kind}", state)
    assert os.listdir(tmp_path) == []


def test_a_zero_character_which_a_zip_would_cut_a_name_at_is_refused_there_and_kept_elsewhere(tmp_path):
    with pytest.raises(ValueError, match=r"the name 'a\\x00b' has a zero character.*\.safetensors takes it"):
        save(tmp_path / "a.npz", {"a\0b": np.ones(1)})
    assert os.listdir(tmp_path) == []
    assert list(again({"a\0b": np.ones(1)}, ".safetensors")) == ["a\0b"]
    assert again({"a\0b": 1}, ".npz") == {"a\0b": 1}        # the name of no array


def test_without_the_package_safetensors_the_error_says_what_to_install_and_npz_works(old, monkeypatch):
    content = (old / "a.safetensors").read_bytes()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for attempt in (load, lambda path: save(path, {"n": 1})):
        with pytest.raises(ImportError, match="pip install safetensors"):
            attempt(old / "a.safetensors")
    assert (old / "a.safetensors").read_bytes() == content
    save(old / "a.npz", {"n": 2})
    assert load(old / "a.npz") == {"n": 2}


def test_errors_are_value_errors_that_callers_may_catch_with_those_of_shapes(tmp_path):
    assert issubclass(ShapeError, ValueError)
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="it is empty") as caught:
        load(tmp_path / "a.npz")
    assert isinstance(caught.value.__cause__, zipfile.BadZipFile)        # the reason stays in sight


ANY_HEADER = "{'descr': %s, 'fortran_order': False, 'shape': %s, }\n"


def npy_of(header, data=bytes(16)):
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data


def must_refuse(path, content=None):
    if content is not None:
        path.write_bytes(content)
    assert refused(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_swells_and_lies_about_it_takes_no_room(tmp_path, method):
    content = bytearray(as_zip({"w.npy": npy_of(ANY_HEADER % ("'<f8'", "(13107200,)"), bytes(100 << 20))}, method))
    content[22:26] = content[(i := content.rindex(b"PK\1\2")) + 24:i + 28] = struct.pack("<I", 100)
    (tmp_path / "a.npz").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a\.npz"):
            load(tmp_path / "a.npz", max_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", [
    "{[]: 1}", "(" * 5000, "-" * 9000 + "1", "{'''", "  x\n y\n",
    ANY_HEADER % ("'<f8'", "(True, 2)"), ANY_HEADER % ("()", "(2,)"), ANY_HEADER % ("'a8'", "(2,)")],
    ids="unhashable brackets minuses quotes indent bool nodescr alias".split())
def test_a_header_of_npy_that_numpy_stumbles_over_is_a_value_error(tmp_path, header):
    path = tmp_path / "a.npz"
    path.write_bytes(as_zip({"w.npy": npy_of(header)}))
    must_refuse(path)


@pytest.mark.parametrize(("descr", "shape", "data"), [
    ("'<f8'", "(-1, -2)", 16), ("'<f8'", "(-1, 0)", 0), ("'<f8'", f"({10 ** 30}, 0)", 0),
    ("'<f8'", "(" + "1, " * 65 + ")", 8), ("'<U0'", "(2,)", 0), ("('<f8', (2,))", "(2,)", 32)])
def test_a_shape_that_no_array_can_have_names_the_file(tmp_path, descr, shape, data):
    must_refuse(tmp_path / "a.npz", as_zip({"w.npy": npy_of(ANY_HEADER % (descr, shape), bytes(data))}))


@pytest.mark.parametrize("shape", [[0, 2 ** 63], [0, 10 ** 18, 10 ** 18], [0] * 65])
def test_a_shape_of_safetensors_that_no_array_can_have_names_the_file(tmp_path, shape):
    header = f'{{"w":{{"dtype":"F64","shape":{shape},"data_offsets":[0,0]}}}}'.encode()
    must_refuse(tmp_path / "a.safetensors", struct.pack("<Q", len(header)) + header)


def test_metadata_that_is_null_is_none(tmp_path):
    header = b'{"__metadata__":null,"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    assert load(tmp_path / "a.safetensors")["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("at", "value"), [(8, 1), (10, 12), (10, 14), (42, 255), ("offset", 127), ("offset", 255)])
def test_flags_methods_and_offsets_of_a_zip_that_are_wrong_name_the_file(tmp_path, at, value):
    path = tmp_path / "a.npz"
    save(path, {"w": np.ones(2)})
    content = bytearray(path.read_bytes())
    content[len(content) - 6 if at == "offset" else content.index(b"PK\1\2") + at] = value
    must_refuse(path, content)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_another_compression_names_the_file(tmp_path, method):
    content = bytearray(as_zip({"w.npy": npy_of(ANY_HEADER % ("'<f8'", "(2,)"))}, method))
    content[45:60] = b"\xff" * 15
    must_refuse(tmp_path / "a.npz", content)


def test_complex64_in_safetensors_is_read_as_numpy_has_it(tmp_path):
    import safetensors.numpy
    safetensors.numpy.save_file({"c": np.ones(2, np.complex64)}, tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors")["c"].dtype == np.complex64


@pytest.mark.parametrize("kind", [".npz", ".safetensors"])
def test_a_structure_that_is_no_dict_at_its_top_is_refused(tmp_path, kind):
    import safetensors.numpy
    text = '{"value": 3}'
    must_refuse(tmp_path / f"a{kind}", as_zip({"tinygrad_attn.json": text.encode()}) if kind == ".npz" else
            safetensors.numpy.save({}, {"tinygrad_attn": text}))


@pytest.mark.parametrize("more", [{}, {"n": 1}])
def test_the_name___metadata___comes_back_or_is_refused_when_it_is_saved(tmp_path, more):
    path = tmp_path / "a.safetensors"
    try:
        save(path, {"__metadata__": np.ones(2), **more})
    except ValueError:
        return
    assert load(path)["__metadata__"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", [".npz", ".safetensors"])
@pytest.mark.parametrize("make", ["itself", "deep"])
def test_a_tree_that_holds_itself_or_is_too_deep_is_a_value_error(tmp_path, kind, make):
    tree = {}
    if make == "itself":
        tree["a"] = tree
    for _ in range(5000 if make == "deep" else 0):
        tree = {"a": tree}
    with pytest.raises(ValueError, match="save: "):
        save(tmp_path / f"a{kind}", tree)


@pytest.mark.parametrize("state", [{"w" * 66000: np.ones(1)}, {"\ud800": np.ones(1)}, {"a": {"big": 10 ** 5000}}],
                         ids=["long", "surrogate", "huge"])
def test_a_name_or_number_that_the_format_has_not_is_a_value_error_that_says_where(tmp_path, state):
    with pytest.raises(ValueError, match="save: "):
        save(tmp_path / "a.npz", state)


def test_long_doubles_are_refused_by_safetensors_as_complex_ones_are(tmp_path):
    with pytest.raises(TypeError, match="save: m/a is"):
        save(tmp_path / "a.safetensors", {"m": {"a": np.ones(2, np.longdouble)}})


def test_a_masked_array_does_not_lose_its_mask_silently(tmp_path):
    with pytest.raises(TypeError):
        save(tmp_path / "a.npz", {"a": np.ma.masked_array([1.0, 2.0], [True, False])})


def test_a_string_of_numpys_is_a_string(tmp_path):
    save(tmp_path / "a.npz", {"a": np.str_("x")})
    assert load(tmp_path / "a.npz") == {"a": "x"}


@pytest.mark.parametrize("kind", [".npz", ".safetensors"])
def test_a_full_disk_names_the_file(tmp_path, kind):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match=f"a{kind}"):
            save(tmp_path / f"a{kind}", {"new": np.zeros(1 << 18)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
