"""Record from the real CuPy which of NumPy's functions it has, and with which arguments.

    pip install cupy-cuda12x                                  CuPy is only imported: this needs no GPU and no driver
    python tests/backend/record_cupy.py > tests/backend/cupy_signatures.json

The strict stand-in array and the static check of the sources read the file. A signature is a list of parameters:
`x` is required, `axis=` is optional, parameters after `*` are keywords only, `*args` and `**kwargs` take anything.
"""

import inspect
import json
import re
from typing import Any

import cupy
import numpy as np

UFUNC_METHODS = {"reduce": (), "accumulate": (), "reduceat": (0,), "at": (0, 0), "outer": ()}


class AnyArray:
    """A placeholder for an array: CuPy accepts or refuses the call before it uses a GPU."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def from_parameters(parameters: list[inspect.Parameter]) -> list[str]:
    found, named_only = [], False
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            named_only = True
            found.append(f"*{p.name}")
        elif p.kind is p.VAR_KEYWORD:
            found.append(f"**{p.name}")
        else:
            if p.kind is p.KEYWORD_ONLY and not named_only:
                named_only = True
                found.append("*")
            found.append(p.name + ("" if p.default is p.empty else "="))
    return found


def from_text(text: str) -> list[str] | None:
    """Read the first line of a Cython docstring, such as `name(self, Py_ssize_t axis1, dtype=None, *axes)`."""
    found = re.match(r"(?:\w+\.)?\w+\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text)
    if found is None:
        return None
    parameters = []
    listed = re.sub(r"\[([^]]*)\]", lambda rest: re.sub(r"(\w+)", r"\1=", rest[1]), found[1])  # x[, out] is x, out=
    for part in listed.replace("\\*", "*").split(","):
        name, equals, _ = part.strip().partition("=")
        name = name.split(":")[0].strip().split(" ")[-1]
        if name not in ("self", "/", "", "None"):
            parameters.append(name + equals)
    return parameters


def signature(function: Any) -> list[str] | None:
    """The parameters of a function; None if they are not known."""
    try:
        return from_parameters(list(inspect.signature(function).parameters.values()))
    except (TypeError, ValueError):
        return from_text((function.__doc__ or "").strip())


def ufunc(function: Any) -> dict[str, Any]:
    methods = []
    for method, arguments in UFUNC_METHODS.items():
        try:
            getattr(function, method)(AnyArray(), *arguments)
        except NotImplementedError:
            continue
        except (AttributeError, TypeError):
            if method != "outer" or not hasattr(function, method):
                continue
        methods.append(method)
    return {"parameters": from_text((function.__doc__ or "").strip()), "methods": methods}


def functions_of(ours: Any, theirs: Any, prefix: str = "") -> dict[str, Any]:
    found = {}
    for name in sorted(dir(ours)):
        numpys, cupys = getattr(ours, name), getattr(theirs, name, None)
        plain = callable(numpys) and not isinstance(numpys, (type, np.ufunc)) and not name.startswith("_")
        if plain and callable(cupys) and cupys is not numpys:  # skip functions that CuPy takes from NumPy
            found[prefix + name] = signature(cupys)
    return found


def main() -> None:
    ufuncs = {}
    for name in sorted(dir(np)):
        if isinstance(getattr(np, name), np.ufunc) and hasattr(cupy, name):
            function = getattr(cupy, name)
            general = {"parameters": ["x1", "x2"], "methods": []}  # matmul; only a GPU shows whether it takes `out`
            ufuncs[name] = ufunc(function) if isinstance(function, cupy.ufunc) else general
    methods, attributes = {}, []
    for name in sorted(dir(cupy.ndarray)):
        if not name.startswith("_"):
            value = getattr(cupy.ndarray, name)
            if callable(value):
                methods[name] = [p for p in signature(value) or [] if p != "self"]
            else:
                attributes.append(name)
    record = {
        "versions": {"cupy": cupy.__version__, "numpy": np.__version__},
        "functions": functions_of(np, cupy) | functions_of(np.linalg, cupy.linalg, "linalg."),
        "ufuncs": ufuncs,
        "methods": methods,
        "attributes": attributes,
    }
    lines = []
    for part, value in record.items():
        if isinstance(value, dict):
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in value.items())
            lines.append(f"{json.dumps(part)}: {{\n{rows}\n}}")
        else:
            lines.append(f"{json.dumps(part)}: {json.dumps(value)}")
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
