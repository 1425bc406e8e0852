"""Modules: parameters are found where they stand, loading is all or nothing, and each layer is its formula."""

import copy
import math
import pickle
from itertools import pairwise

import numpy as np
import pytest

from tinygrad_attn import ShapeError, Tensor, gradcheck, graph, nn, no_grad, optim
from tinygrad_attn.nn import Module, Parameter


class Holder(Module):
    """A module of whatever it is given; there is no super().__init__()."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def p(*values, **options):
    return Parameter(list(map(float, values)), **options)


def names(module):
    return [name for name, _ in module.named_parameters()]


def near(actual, expected, tol=1e-12):
    actual = actual.numpy() if isinstance(actual, Tensor) else actual
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


# ------------------------------------------------------------------------------------------- what is a parameter

def test_parameters_are_found_in_attributes_lists_tuples_and_dicts_however_deep():
    a, b, c, d, e, f = (p(i) for i in range(6))
    module = Holder(w=a, many=[b, (c, {"deep": [[d]]})], by_name={"x": Holder(w=e), 7: f})
    assert names(module) == ["w", "many.0", "many.1.0", "many.1.1.deep.0.0", "by_name.x.w", "by_name.7"]
    assert list(module.parameters()) == [a, b, c, d, e, f]


def test_what_is_no_parameter_is_not_found():
    frozen = p(1, requires_grad=False)
    module = Holder(w=Tensor([1.0], requires_grad=True), array=np.ones(2), frozen=frozen, none=None, text="w",
                    function=lambda: p(2), result=p(3) * 2)
    assert list(module.parameters()) == [frozen]            # which is one, frozen or not


def test_a_parameter_that_was_given_away_or_replaced_is_the_new_one():
    module = Holder(w=p(1), layers=[nn.Linear(1, 1)])
    module.w, module.layers = p(2, 3), [*module.layers, nn.Linear(1, 1, bias=False)]
    assert names(module) == ["w", "layers.0.weight", "layers.0.bias", "layers.1.weight"]
    del module.layers
    assert module.state_dict().keys() == {"w"}


def test_a_tied_parameter_comes_once_and_an_equal_one_twice():
    tied = p(1)
    module = Holder(a=tied, b=Holder(c=tied), d=p(1), e=p(1))
    assert names(module) == ["a", "d", "e"]
    assert len(list(module.parameters())) == 3


def test_a_module_that_stands_in_two_places_comes_once_by_its_first_name():
    shared = nn.Linear(1, 1, rng=0)
    module = Holder(a=Holder(inner=shared), b=[shared])
    assert [name for name, _ in module.named_modules()] == ["", "a", "a.inner"]
    assert names(module) == ["a.inner.weight", "a.inner.bias"]


def test_zero_grad_forgets_the_gradients_of_all_parameters():
    module = Holder(a=p(1), b=[p(2)])
    (module.a * module.b[0]).sum().backward()
    assert [w.grad.tolist() for w in module.parameters()] == [[2.0], [1.0]]
    module.zero_grad()
    assert [w.grad for w in module.parameters()] == [None, None]


def test_a_module_without_forward_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"Holder has no forward\(self, \.\.\.\)"):
        Holder()(1.0)


def test_a_parameter_is_a_leaf_of_a_floating_dtype():
    w = Parameter([1.0, 2.0], dtype=np.float32, name="w")
    assert (w.requires_grad, w.dtype, w.name, w.node) == (True, np.float32, "w", None)
    assert type(w * 2) is Tensor
    for wrong, error in (([1, 2], "floating dtype"), (w, "a Tensor made of Tensors")):
        with pytest.raises(TypeError, match=error):
            Parameter(wrong)


# --------------------------------------------------------------------------------------------------------- cycles

def family():
    """A child that knows its parent, and a list and a dict that lead back as well."""
    child = Holder(linear=nn.Linear(1, 1, rng=0))
    parent = Holder(w=p(1), child=child)
    child.parent, child.friends, child.by_name = parent, [parent, child], {"me": child}
    return parent


def test_a_child_that_knows_its_parent_neither_hangs_nor_recurses():
    parent = family()
    assert names(parent) == ["w", "child.linear.weight", "child.linear.bias"]
    assert [name for name, _ in parent.named_modules()] == ["", "child", "child.linear"]
    assert parent.eval() is parent
    assert not any(module.training for _, module in parent.named_modules())
    assert repr(parent) == "Holder(3 parameters)\n  child: Holder(3 parameters)\n    linear: Linear(1, 1, 2 parameters)"
    assert parent.apply(lambda module: None) is parent
    assert names(parent.child) == ["linear.weight", "linear.bias", "parent.w"]


def test_the_state_of_a_child_that_knows_its_parent_loads_and_copies():
    parent, other = family(), family()
    parent.w.data = [5.0]
    other.load_state_dict(parent.state_dict())
    assert other.w.item() == 5.0
    for twin in (copy.deepcopy(parent), pickle.loads(pickle.dumps(parent))):
        assert twin.child.parent is twin
        assert twin.w is not parent.w
        assert twin.state_dict().keys() == parent.state_dict().keys()


def test_layers_that_know_their_neighbours_neither_hang_nor_recurse():
    layers = [Holder(w=p(i)) for i in range(20)]
    for one, two in pairwise(layers):
        one.next, two.last = two, one
    module = Holder(layers=layers)
    assert list(module.parameters()) == [layer.w for layer in layers]
    assert len(list(module.named_modules())) == 21
    assert repr(module).startswith("Holder(20 parameters)\n  layers.0: Holder(20 parameters)\n    next: Holder(")


def test_a_list_that_holds_itself_is_entered_once():
    layers = [p(1)]
    layers.append(layers)
    assert names(Holder(layers=layers)) == ["layers.0"]


# ---------------------------------------------------------------------------------------------------- state dicts

def test_a_state_dict_is_a_copy_that_can_be_written_to():
    module = Holder(w=p(1, 2), b=Parameter(3.0))
    state = module.state_dict()
    state["w"][0], state["b"][...] = 9, 9
    assert (module.w.numpy().tolist(), module.b.item()) == ([1.0, 2.0], 3.0)
    before = module.state_dict()
    module.w.data = [7.0, 8.0]
    assert before["w"].tolist() == [1.0, 2.0]
    module.load_state_dict(before)
    before["w"][0] = 9                                      # nor does loading keep the array
    assert module.w.numpy().tolist() == [1.0, 2.0]
    assert all(type(array) is np.ndarray for array in before.values())


def test_a_tied_parameter_is_in_the_state_under_each_name():
    tied = p(1)
    assert list(Holder(a=tied, b=[tied]).state_dict()) == ["a", "b.0"]


def test_all_mismatches_are_listed_and_nothing_is_changed():
    tied = p(0)
    module = Holder(a=p(1, 2), b=p(3), c=p(4), d=p(5), tied=tied, again=tied, half=Parameter([0.0], dtype=np.float16))
    before = module.state_dict()
    with pytest.raises(ValueError, match="nothing was loaded, since 8 of the names do not fit") as caught:
        module.load_state_dict({"a": np.ones(3), "b": np.array([1]), "d": np.array([8.0]), "tied": np.ones(1),
                                "again": np.zeros(1), "half": np.array([1e6]), "more": np.ones(1), "x.y": np.ones(1),
                                "e": None})
    assert str(caught.value).splitlines()[1:] == [
        "  a: expected shape (2,), found (3,)", "  b: expected floats, found int64",
        "  again: it is one with tied, but their arrays differ", "  half: its numbers are too large for float16",
        "  c: missing; expected shape (1,)", "  more: unexpected", "  x.y: unexpected", "  e: unexpected"]
    assert {name: x.tolist() for name, x in module.state_dict().items()} == {k: x.tolist() for k, x in before.items()}


@pytest.mark.parametrize(("value", "said"), [
    (np.array([True]), "found bool"), (np.array([1]), "found int64"), (np.array([1j]), "found complex128"),
    (np.array(["1"]), "found <U1"), (None, "found object"), ([[1.0]], r"expected shape \(1,\), found \(1, 1\)"),
    (1.0, r"expected shape \(1,\), found \(\)"), (np.zeros(0), r"found \(0,\)")])
def test_an_array_of_another_kind_or_shape_is_a_mismatch(value, said):
    with pytest.raises(ValueError, match=said):
        Holder(w=p(1)).load_state_dict({"w": value})


def test_with_strict_false_names_may_be_missing_or_unexpected_and_are_returned_but_shapes_must_fit():
    tied = p(0)
    module = Holder(a=p(1), b=p(2), tied=tied, again=tied)
    missing, unexpected = module.load_state_dict({"a": np.array([7.0]), "z": np.ones(3)}, strict=False)
    assert (missing, unexpected) == (["b", "tied", "again"], ["z"])
    assert (module.a.item(), module.b.item()) == (7.0, 2.0)
    with pytest.raises(ValueError, match=r"1 of the names do not fit:\n  b: expected shape \(1,\), found \(2,\)$"):
        module.load_state_dict({"a": np.array([0.0]), "b": np.ones(2)}, strict=False)
    assert module.a.item() == 7.0


def test_loading_returns_no_names_when_all_fit():
    module = nn.Linear(2, 2, rng=0)
    found = module.load_state_dict(module.state_dict())
    assert (found.missing_keys, found.unexpected_keys) == ([], [])


def test_a_tied_parameter_needs_one_of_its_names_and_if_both_are_there_both_alike():
    tied = p(0, 0)
    module = Holder(a=tied, b=tied)
    for given, array in (("a", [1.0, 2.0]), ("b", [3.0, 4.0]), ("ab", [5.0, np.nan])):
        assert module.load_state_dict({name: np.array(array) for name in given}).missing_keys == []
        np.testing.assert_array_equal(tied.numpy(), array)
        assert module.a is module.b is tied
    with pytest.raises(ValueError, match=r"a: missing; expected shape .*\n  b: missing"):
        module.load_state_dict({})


def test_arrays_are_loaded_in_the_dtype_that_the_parameter_has():
    module = Holder(w=Parameter([0.0], dtype=np.float32), v=p(0))
    module.load_state_dict({"w": np.array([1 / 3]), "v": np.array([0.1], np.float32)})
    assert (module.w.dtype, module.w.numpy()[0]) == (np.float32, np.float32(1 / 3))
    assert (module.v.dtype, module.v.numpy()[0]) == (np.float64, float(np.float32(0.1)))
    module.load_state_dict({"w": [np.inf], "v": Tensor([np.nan])})         # a list and a Tensor will do
    assert (module.w.item(), math.isnan(module.v.item())) == (np.inf, True)


def test_what_is_no_dict_is_an_error_that_says_what_to_give():
    for wrong in ("model.npz", None, [("w", np.ones(1))]):
        with pytest.raises(TypeError, match=r"arrays by name, a dict, not a .*; serialize.load\(path\) reads one"):
            nn.Linear(1, 1).load_state_dict(wrong)


def test_a_state_of_pytorchs_loads_as_it_is_bfloat16_too(torch):
    theirs, ours = torch.nn.Linear(3, 2), nn.Linear(3, 2, dtype=np.float32)
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        ours.load_state_dict(theirs.to(kind).state_dict())
        np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().float().numpy())
    ours.load_state_dict(dict(theirs.float().named_parameters()))          # which need gradients
    np.testing.assert_array_equal(ours.bias.numpy(), theirs.bias.detach().numpy())
    with pytest.raises(ValueError, match="expected floats, found int64"):
        ours.load_state_dict({"weight": torch.ones(2, 3, dtype=torch.int64), "bias": torch.ones(2)})


# ----------------------------------------------------------------------------------- modes, conversion, functions

def test_train_and_eval_reach_all_modules_and_dropout_listens():
    module = Holder(layers=[nn.Dropout(0.5, rng=0), {"x": Holder(drop=nn.Dropout(0.5, rng=1))}])
    assert all(part.training for _, part in module.named_modules())
    assert module.eval() is module
    assert not any(part.training for _, part in module.named_modules())
    x = np.ones(100)
    assert module.layers[0](x) is x
    assert module.train() is module
    assert set(module.layers[0](x)) == {0.0, 2.0}
    module.layers[0].eval()                                                 # one alone
    assert [part.training for _, part in module.named_modules()] == [True, False, True, True]
    assert nn.Dropout(0.5).training                                         # others are as they were


def test_apply_calls_what_is_inside_first_and_the_module_itself_last_each_once():
    shared = Holder()
    module = Holder(a=Holder(inner=shared), b=[shared, Holder()])
    seen = []
    assert module.apply(seen.append) is module
    assert seen[-1] is module
    assert seen.index(shared) < seen.index(module.a)
    assert sorted(map(id, seen)) == sorted(map(id, (module, module.a, shared, module.b[1])))


def test_astype_converts_in_place_and_forgets_gradients():
    tied = p(1 / 3, name="w")
    module = Holder(a=tied, b=[tied], frozen=p(2, requires_grad=False))
    (tied * 2).sum().backward()
    assert module.astype(np.float32) is module
    assert module.a is module.b[0] is tied
    assert (tied.dtype, tied.grad, tied.name, tied.requires_grad) == (np.float32, None, "w", True)
    assert tied.numpy()[0] == np.float32(1 / 3)
    assert (module.frozen.dtype, module.frozen.requires_grad) == (np.float32, False)
    for wrong in (int, complex, bool, "i4", "U3"):
        with pytest.raises(TypeError, match=r"Holder.astype: parameters are of a floating dtype, not"):
            module.astype(wrong)
    assert tied.dtype == np.float32


def test_an_optimiser_goes_on_after_astype():
    module = Holder(w=p(1.0, -2.0))
    optimiser = optim.SGD(module.parameters(), 0.25, momentum=0.5)

    def step():
        optimiser.zero_grad()
        (module.w * module.w).sum().backward()
        optimiser.step()
        return module.w.numpy().tolist()
    assert step() == [0.5, -1.0]                        # m = 2w = (2, −4); w − m/4
    module.astype(np.float32)
    assert step() == [0.0, 0.0]                         # m = m/2 + 2w = (2, −4) once more
    assert module.w.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_layers_are_made_and_compute_in_the_dtype_that_was_asked_for(dtype):
    x = np.ones((2, 4), dtype)
    made = [nn.Linear(4, 3, dtype=dtype), nn.LayerNorm(4, dtype=dtype), nn.RMSNorm(4, dtype=dtype), nn.ReLU(),
            nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Dropout(0.5, rng=0)]
    for layer in (*made, nn.Linear(4, 3).astype(dtype), nn.LayerNorm(4).astype(dtype), nn.RMSNorm(4).astype(dtype)):
        assert layer(Tensor(x)).dtype == dtype, layer
        assert all(w.dtype == dtype for w in layer.parameters())
    assert nn.Embedding(3, 2, padding_idx=1, dtype=dtype)([1, 2]).dtype == dtype
    assert nn.Linear(1, 1).weight.dtype == np.float64                       # where none is asked for


# ---------------------------------------------------------------------------------------------------------- repr

def test_a_repr_tells_sizes_options_and_numbers_of_parameters_and_folds_those_alike():
    model = nn.Sequential(nn.Embedding(1000, 8), nn.Linear(8, 8), nn.ReLU(), nn.ReLU(), nn.ReLU(),
                          nn.Linear(8, 8, bias=False), nn.LayerNorm(8), nn.RMSNorm(8), nn.RMSNorm(8, 1e-6),
                          nn.Dropout(0.25), nn.GELU(), nn.GELU("tanh"), nn.Embedding(3, 8, padding_idx=0))
    assert repr(model) == """\
Sequential(8,192 parameters)
  0: Embedding(1000, 8, 8,000 parameters)
  1: Linear(8, 8, 72 parameters)
  2 … 4, 3 times: ReLU()
  5: Linear(8, 8, bias=False, 64 parameters)
  6: LayerNorm(8, eps=1e-05, 16 parameters)
  7: RMSNorm(8, 8 parameters)
  8: RMSNorm(8, eps=1e-06, 8 parameters)
  9: Dropout(0.25)
  10: GELU()
  11: GELU('tanh')
  12: Embedding(3, 8, padding_idx=0, 24 parameters)"""


def test_a_repr_indents_what_is_inside_and_counts_tied_parameters_once():
    def block():
        return Holder(norm=nn.LayerNorm(4), parts={"linear": [nn.Linear(4, 4)]})
    tokens = nn.Embedding(5, 4)
    model = Holder(tokens=tokens, blocks=[block(), block()], out=nn.Linear(4, 5, bias=False))
    model.out.weight = tokens.weight
    assert repr(model) == """\
Holder(76 parameters)
  tokens: Embedding(5, 4, 20 parameters)
  blocks.0 … blocks.1, 2 times: Holder(28 parameters)
    norm: LayerNorm(4, eps=1e-05, 8 parameters)
    parts.linear.0: Linear(4, 4, 20 parameters)
  out: Linear(4, 5, bias=False, 20 parameters)"""
    assert repr(Holder()) == "Holder()"


# --------------------------------------------------------------------------------------------------------- copies

def tied_model():
    model = Holder(tokens=nn.Embedding(5, 3, rng=0), out=nn.Linear(3, 5, bias=False),
                   body=nn.Sequential(nn.Linear(3, 3, rng=1), nn.GELU(), nn.LayerNorm(3), nn.Dropout(0.5, rng=2)))
    model.out.weight = model.tokens.weight
    model.body[0].bias.requires_grad = False
    return model.eval()


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
                         ids=["deepcopy", "pickle"])
def test_a_copy_keeps_ties_modes_and_what_is_frozen_and_shares_nothing(twin):
    model = tied_model()
    other = twin(model)
    assert other.out.weight is other.tokens.weight
    assert type(other.out.weight) is Parameter
    assert names(other) == names(model)
    assert [w.requires_grad for w in other.parameters()] == [w.requires_grad for w in model.parameters()]
    assert not other.body.training
    assert repr(other) == repr(model)
    before = model.state_dict()
    for w in other.parameters():
        w.data = np.zeros(w.shape)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    x = np.random.default_rng(0).normal(size=(2, 3))
    near(twin(model).body(x), model.body(x).numpy(), 0)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "tanh", np.tanh], ids=str)
def test_a_transformer_can_be_pickled_and_copied_with_any_activation(activation):
    layer, x = nn.TransformerEncoderLayer(4, 2, 6, 0.0, activation, rng=0), np.ones((1, 3, 4))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        near(twin(x), layer(x).numpy(), 0)
    model = nn.GPT(5, 4, 4, 2, 1, rng=0)
    near(pickle.loads(pickle.dumps(model))([[1, 2]]), model([[1, 2]]).numpy(), 0)


def test_a_shallow_copy_shares_its_parameters():
    model = tied_model()
    assert list(copy.copy(model).parameters()) == list(model.parameters())


# --------------------------------------------------------------------------------------------------- the layers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))


def with_parameters(layer, *given):
    """The layer as a function of x and of its parameters, so that gradcheck can move them."""
    def run(x, *ws):
        for name, w in zip(given, ws):
            vars(layer)[name] = w           # past the guard: what stands there is a Tensor for once
        return layer(x)
    return run


def test_gradients_of_layers_to_order_2():
    x, w, b = X[0], RNG.normal(size=(2, 4)), RNG.normal(size=4)
    gradcheck(with_parameters(nn.Linear(4, 2), "weight", "bias"), (x, w, b[:2]), order=2)
    gradcheck(with_parameters(nn.LayerNorm(4), "weight", "bias"), (x, b, b), order=2)
    gradcheck(with_parameters(nn.RMSNorm(4), "weight"), (x, b), order=2)
    gradcheck(with_parameters(nn.RMSNorm(4, 0.1, elementwise_affine=False)), x, order=2)
    gradcheck(lambda w: with_parameters(nn.Embedding(3, 2), "weight")([[0, 2], [2, 2]], w) ** 2,
              RNG.normal(size=(3, 2)), order=2)
    gradcheck(nn.Sequential(nn.Linear(4, 3, rng=0), nn.Tanh(), nn.LayerNorm(3), nn.Linear(3, 1, rng=1)), x, order=2)
    for activation in (nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Tanh(), nn.Sigmoid()):
        gradcheck(activation, x, order=2)
    gradcheck(lambda x: nn.Dropout(0.5, rng=0)(x) ** 2, x, order=2)        # the same places each time


def test_each_layer_is_its_formula():
    linear = nn.Linear(4, 2, rng=0)
    w, b = linear.weight.numpy(), linear.bias.numpy()
    near(linear(X), np.einsum("...i,oi->...o", X, w) + b)
    near(nn.Linear(4, 2, bias=False, rng=0)(X), X @ w.T)
    norm, weight = nn.LayerNorm(4, 0.1), RNG.normal(size=(2, 4))
    norm.weight.data, norm.bias.data = weight
    centred = X - X.mean(-1, keepdims=True)
    near(norm(X), centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 0.1) * weight[0] + weight[1])
    near(nn.LayerNorm(4, 0.1, elementwise_affine=False)(X), centred / np.sqrt(X.var(-1, keepdims=True) + 0.1))
    assert names(nn.LayerNorm(4, bias=False)) == ["weight"]
    assert names(nn.LayerNorm(4, elementwise_affine=False)) == []
    rms = nn.RMSNorm(4, 0.1)
    rms.weight.data = weight[0]
    near(rms(X), X / np.sqrt((X ** 2).mean(-1, keepdims=True) + 0.1) * weight[0])
    tiny = np.float32([[1e-4, 0, 0, 0]])                # where the machine epsilon of float32, 2⁻²³, is seen
    near(nn.RMSNorm(4)(tiny), tiny / np.sqrt(2.5e-9 + 2.0 ** -23), 1e-6)
    near(nn.SiLU()(X), X / (1 + np.exp(-X)))
    near(nn.Sigmoid()(X), 1 / (1 + np.exp(-X)))
    near(nn.Tanh()(X), np.tanh(X))
    near(nn.ReLU()(X), X * (X > 0))
    near(nn.GELU()(X), X * np.vectorize(math.erfc)(-X / math.sqrt(2)) / 2)
    near(nn.GELU("tanh")(X), X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X ** 3))) / 2)


def test_an_embedding_picks_rows_and_adds_up_the_gradients_of_those_picked_twice():
    layer = nn.Embedding(4, 2, rng=0)
    ids = np.array([[3, 0], [3, 3]], np.uint8)
    near(layer(ids), layer.weight.numpy()[ids])
    (layer(ids) * np.arange(8.0).reshape(2, 2, 2)).sum().backward()
    near(layer.weight.grad, [[2.0, 3.0], [0.0, 0.0], [0.0, 0.0], [0.0 + 4 + 6, 1.0 + 5 + 7]])
    assert layer(2).shape == (2,)
    assert layer(np.zeros((0, 3), int)).shape == (0, 3, 2)
    near(layer(Tensor([1])), layer.weight.numpy()[[1]])


def test_the_row_of_padding_starts_at_zero_and_gets_no_gradient():
    layer = nn.Embedding(3, 2, padding_idx=1, rng=0)
    plain = nn.Embedding(3, 2, rng=0)
    near(layer.weight, plain.weight.numpy() * [[1], [0], [1]])
    layer([[1, 2], [1, 0]]).sum().backward()
    near(layer.weight.grad, [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    layer.weight.data = np.ones((3, 2))                                     # it is a row like others, but for that
    near(layer([1]), [[1.0, 1.0]])


@pytest.mark.parametrize(("ids", "error", "said"), [
    ([0, 3], IndexError, "id 3 is not among the 3 rows 0 … 2"), ([[0], [-1]], IndexError, "id -1 is not among"),
    (3, IndexError, "id 3"), ([0.0], TypeError, "ids are row numbers, integers, not float64"),
    ([True], TypeError, "not bool"), ([], TypeError, "not float64"), (np.zeros(0), TypeError, "not float64"),
    (Tensor([1.0]), TypeError, "not float64"), (2 ** 70, TypeError, "not object"), ("a", TypeError, "no|not")])
def test_an_id_that_is_no_row_or_no_integer_is_named(ids, error, said):
    with pytest.raises(error, match=said):
        nn.Embedding(3, 2)(ids)


def test_a_last_axis_of_another_width_is_named_also_where_it_would_broadcast():
    for layer, said in ((nn.Linear(4, 2), "Linear: x .*; its last axis must be 4, in_features"),
                        (nn.LayerNorm(4), "LayerNorm: x .*; its last axis must be 4, normalized_shape"),
                        (nn.RMSNorm(4), "RMSNorm: x .*; its last axis must be 4, normalized_shape")):
        for shape in ((2, 3), (2, 1), (4, 5), ()):
            with pytest.raises(ShapeError, match=said):
                layer(np.ones(shape))
        assert layer(np.ones(4)).ndim == 1


def test_dropout_drops_one_in_so_many_keeps_the_mean_and_draws_anew_each_time():
    layer, x = nn.Dropout(0.25, rng=0), np.ones(10_000)
    one, two = layer(x), layer(x)
    assert set(one) == {0.0, 1 / 0.75}
    assert abs((one == 0).mean() - 0.25) < 0.02         # 4.6 standard deviations
    assert (one != two).any()
    np.testing.assert_array_equal(nn.Dropout(0.25, rng=0)(x), one)
    assert nn.Dropout(0.0)(x).tolist() == x.tolist()


def test_a_sequence_runs_its_modules_in_order_and_names_them_by_number():
    first, second = nn.Linear(4, 3, rng=0), nn.Linear(3, 2, rng=1)
    model = nn.Sequential(first, nn.ReLU(), second)
    near(model(X), np.maximum(X @ first.weight.numpy().T + first.bias.numpy(), 0) @ second.weight.numpy().T
         + second.bias.numpy())
    assert names(model) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert (len(model), model[0], model[-1], model[1:2]) == (3, first, second, [model[1]])
    many = nn.Sequential(*(nn.ReLU() for _ in range(12)), first)
    assert many[-1] is first                            # number 12 comes after 2
    assert nn.Sequential()(X) is X
    for wrong in (nn.ReLU, math.tanh, None, [first]):
        with pytest.raises(TypeError, match="is no module; for a function, write a Module whose forward calls it"):
            nn.Sequential(first, wrong)


# --------------------------------------------------------------------------------------------------- how they start

def test_weights_start_evenly_between_plus_and_minus_one_over_the_root_of_the_width():
    layer = nn.Linear(64, 500, rng=0)
    for w in (layer.weight.numpy(), layer.bias.numpy()):
        assert 0.95 / 8 < np.abs(w).max() <= 1 / 8
        assert abs(w.std() - 1 / 8 / math.sqrt(3)) < 0.005      # of an even distribution
    rows = nn.Embedding(1000, 64, rng=0).weight.numpy()
    assert abs(rows.std() - 1) < 0.02
    for norm in (nn.LayerNorm(3), nn.RMSNorm(3)):
        assert norm.weight.numpy().tolist() == [1.0] * 3
    assert nn.LayerNorm(3).bias.numpy().tolist() == [0.0] * 3


def test_a_seed_makes_a_layer_again_none_draws_afresh_and_a_generator_runs_on():
    def weight(rng):
        return nn.Linear(3, 3, rng=rng).weight.numpy().tolist()
    assert weight(0) == weight(0) == weight(np.random.default_rng(0)) != weight(1)
    assert weight(None) != weight(None)
    rng = np.random.default_rng(0)
    assert weight(rng) != weight(rng)
    before = np.random.get_state()[1].tolist()
    weight(0)
    assert np.random.get_state()[1].tolist() == before          # nobody else's randomness is touched


# --------------------------------------------------------------------------------------------- what cannot be made

SIZES = (0, -1, 1.0, "2", None, True, (2, 2), np.float64(2), np.array([2]))


@pytest.mark.parametrize("bad", SIZES, ids=repr)
@pytest.mark.parametrize(("make", "name"), [
    (lambda n: nn.Linear(n, 2), "Linear: in_features"), (lambda n: nn.Linear(2, n), "Linear: out_features"),
    (lambda n: nn.Embedding(n, 2), "Embedding: num_embeddings"), (lambda n: nn.Embedding(2, n), "embedding_dim"),
    (lambda n: nn.LayerNorm(n), "LayerNorm: normalized_shape"), (lambda n: nn.RMSNorm(n), "RMSNorm: normalized_shape"),
    (lambda n: nn.LearnedPositions(n, 2), "LearnedPositions: max_len"),
    (lambda n: nn.LearnedPositions(2, n), "LearnedPositions: width"),
    (lambda n: nn.SinusoidalPositions(n), "SinusoidalPositions: width"),
    (lambda n: nn.MultiHeadAttention(n, 1), "MultiHeadAttention: embed_dim"),
    (lambda n: nn.MultiHeadAttention(2, n), "MultiHeadAttention: num_heads"),
    (lambda n: nn.TransformerEncoderLayer(2, 1, n), "Linear: out_features")])
def test_a_size_that_is_no_whole_number_of_at_least_1_is_named(make, name, bad):
    with pytest.raises(ValueError, match=name):
        make(bad)


def test_a_size_may_be_an_integer_of_numpys_and_a_norms_a_tuple_of_one():
    assert nn.Linear(np.int64(2), np.uint8(3)).weight.shape == (3, 2)
    assert nn.LayerNorm((3,)).weight.shape == nn.RMSNorm([3]).weight.shape == (3,)
    with pytest.raises(ValueError, match=r"normalized_shape=\(2, 3\); it normalises the last axis alone"):
        nn.LayerNorm((2, 3))


@pytest.mark.parametrize("bad", [1.0, 1, True, -0.1, 1.5, math.nan, math.inf, -math.inf], ids=repr)
@pytest.mark.parametrize("make", [
    nn.Dropout, lambda dropout: nn.MultiHeadAttention(2, 1, dropout=dropout),
    lambda dropout: nn.TransformerEncoderLayer(2, 1, 2, dropout),
    lambda dropout: nn.TransformerDecoderLayer(2, 1, 2, dropout)])
def test_a_probability_of_dropout_is_at_least_0_and_below_1(make, bad):
    with pytest.raises(ValueError, match=r"dropout .*; the probability must be at least 0 and below 1"):
        make(bad)


@pytest.mark.parametrize(("make", "error", "said"), [
    (lambda: nn.LayerNorm(2, -1e-5), ValueError, "LayerNorm: eps=-1e-05"),
    (lambda: nn.RMSNorm(2, -1.0), ValueError, "RMSNorm: eps=-1.0"),
    (lambda: nn.LayerNorm(2, math.nan), ValueError, "LayerNorm: eps=nan"),
    (lambda: nn.Embedding(3, 2, padding_idx=3), ValueError, "padding_idx=3; it must be one of the rows 0 … 2"),
    (lambda: nn.Embedding(3, 2, padding_idx=-1), ValueError, "padding_idx=-1"),
    (lambda: nn.GELU("fast"), ValueError, "approximate='fast'"),
    (lambda: nn.TransformerEncoderLayer(2, 1, 2, activation="softmax"), ValueError, "activation='softmax'; it is relu"),
    (lambda: nn.Linear(2, 2, dtype=int), TypeError, "floating dtype"),
    (lambda: nn.Linear(2, 2, dtype=complex), TypeError, "floating dtype"),
    (lambda: nn.Embedding(2, 2, dtype="i4"), TypeError, "floating dtype"),
    (lambda: nn.LayerNorm(2, dtype=bool), TypeError, "floating dtype")])
def test_an_option_out_of_range_is_named(make, error, said):
    with pytest.raises(error, match=said):
        make()


# ------------------------------------------------------------------------------------------------------- pictures

def test_each_call_is_a_box_with_the_name_of_the_class():
    class Block(Module):
        def __init__(self):
            self.first, self.second = nn.Linear(2, 2, rng=0), nn.LayerNorm(2)

        def forward(self, x):
            return x + self.second(self.first(x))
    y = nn.Sequential(Block(), nn.Tanh())(Tensor(np.ones((1, 2)), name="x")).sum()
    assert "[Sequential]" in str(graph.draw(y, collapse=0))
    opened = str(graph.draw(y, collapse=1))
    assert "[Tanh]" in opened
    assert "[Block]" in opened
    assert "[Linear]" not in opened
    inside = str(graph.draw(y, collapse=2))
    assert "[LayerNorm]" in inside
    assert "[Linear]" in inside
    assert "[Block]" not in inside


def test_a_call_that_fails_leaves_no_box_open():
    with pytest.raises(ShapeError):
        nn.Linear(2, 2)(np.ones((1, 3)))
    x = Tensor([1.0], requires_grad=True, name="x")
    assert "[" not in str(graph.draw((x * 2).sum(), collapse=0))


def test_without_a_graph_a_module_computes_the_same():
    layer = nn.Linear(4, 2, rng=0)
    with no_grad():
        out = layer(X)
    assert not out.requires_grad
    near(out, layer(X).numpy(), 0)


@pytest.mark.parametrize("both", [{"a.b": 1.0, "a": {"b": 2.0}}, {1: 1.0, "1": 2.0}], ids=str)
def test_two_parameters_of_one_name_are_an_error_and_none_is_lost(both):
    def made(x):
        return {key: made(item) for key, item in x.items()} if isinstance(x, dict) else Parameter([x])
    with pytest.raises(ValueError, match="name"):
        Holder(p=made(both)).state_dict()


def test_the_repr_of_a_list_that_holds_itself_does_not_recurse():
    layers = [nn.Linear(1, 1)]
    layers.append(layers)
    assert repr(Holder(layers=layers)).startswith("Holder(2 parameters)")


def test_parts_that_are_shared_at_many_levels_are_not_walked_exponentially():
    module = nn.Linear(1, 1)
    for _ in range(60):
        module = Holder(a=module, b=module)
    assert len(list(module.parameters())) == 2
    assert len(list(module.named_modules())) == 61


def test_parts_that_all_know_each_other_are_not_walked_exponentially():
    parts = [Holder(w=Parameter([float(i)])) for i in range(12)]
    for part in parts:
        part.others = [other for other in parts if other is not part]
    module = Holder(parts=parts)
    assert len(list(module.parameters())) == 12
    assert repr(module)


def test_the_activations_of_two_models_are_not_one_object():
    a, b = (nn.TransformerEncoderLayer(2, 1, 2, activation="relu") for _ in range(2))
    a.eval()
    assert all(part.training for _, part in b.named_modules())


def test_an_array_that_is_none_is_listed_with_the_others():
    with pytest.raises(ValueError, match="nothing was loaded, since 2 of the names do not fit"):
        nn.Linear(2, 1).load_state_dict({"weight": [[1.0], [2.0, 3.0]], "bias": np.ones(3)})


@pytest.mark.parametrize("bad", [True, 1.0, 1.5, "1"], ids=repr)
def test_padding_idx_is_a_whole_number(bad):
    with pytest.raises(ValueError, match="padding_idx"):
        nn.Embedding(3, 2, padding_idx=bad)


@pytest.mark.parametrize("make", [lambda: nn.Dropout("0.1"), lambda: nn.Dropout(None), lambda: nn.LayerNorm(2, None),
                                  lambda: nn.RMSNorm(2, "x"), lambda: nn.LayerNorm(2, math.inf)])
def test_an_option_that_is_no_number_is_named(make):
    with pytest.raises(ValueError, match=r"Dropout|LayerNorm|RMSNorm"):
        make()


def test_an_activation_that_is_a_class_or_a_list_is_told_as_such():
    for wrong in (nn.GELU, ["relu"]):
        with pytest.raises((TypeError, ValueError), match="activation="):
            nn.TransformerEncoderLayer(2, 1, 2, activation=wrong)


def test_a_parameter_is_not_lost_by_being_assigned_over():
    layer = nn.Linear(2, 1, rng=0)
    for wrong in (layer.weight - 0.1, np.zeros((1, 2)), 3.0):
        with pytest.raises(TypeError, match=r"Linear\.weight is a Parameter"):
            layer.weight = wrong
    with no_grad(), pytest.raises(TypeError, match=r"\.weight\.data = "):
        layer.weight -= 0.1
    assert names(layer) == ["weight", "bias"]
    layer.weight, layer.bias = Parameter(np.zeros((1, 2))), None
    assert names(layer) == ["weight"]


def test_a_parameter_is_of_a_floating_dtype():
    with pytest.raises(TypeError, match=r"write 1\.0 for 1"):
        Parameter([1, 2], requires_grad=False)


def test_a_parameter_or_module_of_the_class_is_an_error_when_the_class_is_made():
    for shared in (Parameter([1.0]), nn.ReLU()):
        with pytest.raises(TypeError, match="belongs to the class"):
            type("Shared", (Module,), {"w": shared})


def test_apply_begins_with_the_first_child_and_ends_with_the_module():
    seen = []
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU(), nn.Tanh()))
    model.apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Tanh", "Sequential", "Sequential"]


def test_layers_take_lists_and_integers():
    for layer in (nn.Linear(2, 1), nn.LayerNorm(2), nn.RMSNorm(2), nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Dropout(0.5),
                  nn.Dropout(0.5).eval()):
        assert layer([[1, 2], [3, 4]]).shape[0] == 2
