"""Ways to corrupt a file: each function takes the valid bytes and a generator and returns other bytes."""

import io
import json
import re
import zipfile
import zlib

import numpy as np

WRONG_VALUES = (
    -1, 0, 1, 3, 10**9, 2**31, 2**63, 10**30, 0.5, -2.5, 1e308, float("nan"), float("inf"), True, None, "", "x",
    "text" * 9, [], [1, 2], {}, {"a": 1},
)  # fmt: skip


def truncated(data, rng):
    return data[: rng.integers(len(data))]


def flipped(data, rng):
    """One to eight bits, anywhere."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 9)):
        out[rng.integers(len(out))] ^= 1 << rng.integers(8)
    return bytes(out)


def flipped_at_the_end(data, rng):
    """Bits where a zip has its directory."""
    tail = min(len(data), 400)
    return data[:-tail] + flipped(data[-tail:], rng)


def zeroed(data, rng):
    """A page that was not written to the disk."""
    start = int(rng.integers(len(data)))
    length = min(int(rng.integers(1, 5000)), len(data) - start)
    return data[:start] + bytes(length) + data[start + length :]


def spliced(data, rng):
    """A part repeated, a part missing, or noise inserted."""
    a, b = sorted(rng.integers(len(data), size=2).tolist())
    return [data[:b] + data[a:], data[:a] + data[b:], data[:a] + rng.bytes(b - a) + data[b:]][rng.integers(3)]


def replaced(data, rng):
    """A completely different file."""
    return [b"", b"PK\5\6" + bytes(18), rng.bytes(500), b"\x93NUMPY" + data[6:], data[::-1]][rng.integers(5)]


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def rebuilt(members, true_checksums, compression=zipfile.ZIP_STORED):
    """A valid zip; with `checksums`, the checksums in its description are also right."""
    if true_checksums:
        sums = {name.removesuffix(".npy"): zlib.crc32(content) for name, content in members if name != "meta.npy"}
        meta = json.loads(array_of(dict(members)["meta.npy"]).tobytes())
        members = [(name, description({**meta, "checksums": sums}) if name == "meta.npy" else content)
                   for name, content in members]  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def array_of(content):
    return np.lib.format.read_array(io.BytesIO(content))


def description(meta):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.frombuffer(json.dumps(meta).encode(), np.uint8))
    return buffer.getvalue()


def swapped(data, rng):
    """Two arrays exchanged; half the time they have different shapes and matching checksums."""
    members, agree = members_of(data), bool(rng.integers(2))
    a, b = rng.choice(len(members) - 1, size=2, replace=False).tolist()
    if agree:
        shape = array_of(members[a][1]).shape
        others = [i for i, (name, content) in enumerate(members) if array_of(content).shape != shape]
        b = next(i for i in others if members[i][0] != "meta.npy")
    members[a], members[b] = (members[a][0], members[b][1]), (members[b][0], members[a][1])
    return rebuilt(members, agree)


def missing_or_strange(data, rng):
    """A member lost, repeated, renamed, compressed or added."""
    members, agree = members_of(data), bool(rng.integers(2))
    i = int(rng.integers(len(members) - 1))
    name, content = members[i]
    bomb = io.BytesIO()
    np.lib.format.write_array(bomb, np.zeros(3_000_000))
    changed = [
        members[:i] + members[i + 1 :],
        [*members[:i], ("../" + name, content), *members[i + 1 :]],
        [*members[:i], ("parameters.other.npy", content), *members[i + 1 :]],
        [*members, ("notes.txt", b"hello")],
        [*members, ("parameters.bomb.npy", bomb.getvalue())],
    ]
    which = int(rng.integers(len(changed)))
    compression = zipfile.ZIP_DEFLATED if which == 4 else zipfile.ZIP_STORED
    return rebuilt(changed[which], agree and which in (0, 2), compression)


def wrong_header(data, rng):
    """An array whose header states another shape, dtype, order or version; every checksum matches."""
    members = members_of(data)
    i = int(rng.integers(len(members)))
    name, content = members[i]
    size = 10 + int.from_bytes(content[8:10], "little")
    head = content[10:size].decode("latin-1")
    changes = [
        (r"\((\d+)", lambda found: f"({int(found[1]) + 1}"), (r"\((\d+)", lambda found: "(99999999999"),
        (r"\((\d+)", lambda found: f"(-{found[1]}"), (r"'<f4'|'<i8'|'\|u1'", lambda found: "'<f8'"),
        (r"'<f4'|'<i8'|'\|u1'", lambda found: "'|O'"), (r"'<f4'|'<i8'|'\|u1'", lambda found: "'<U9'"),
        (r"False", lambda found: "True "), (r"'shape'", lambda found: "'shame'"), (r"\{", lambda found: "[" * 5000),
        (r"\(", lambda found: "(__import__('os').abort(), "), (r"$", lambda found: " " * 60000),
    ]
    pattern, change = changes[rng.integers(len(changes))]
    head = re.sub(pattern, change, head, count=1).encode("latin-1")[:65535]
    version = [b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\x09\0"][rng.integers(5)]
    members[i] = name, content[:6] + version + len(head).to_bytes(2, "little") + head + content[size:]
    return rebuilt(members, true_checksums=name != "meta.npy")


def wrong_description(data, rng):
    """A value somewhere in the description replaced by a nonsensical value; every checksum matches."""
    members = dict(members_of(data))
    meta = json.loads(array_of(members["meta.npy"]).tobytes())
    spoil_somewhere(meta, rng)
    members["meta.npy"] = description(meta)
    return rebuilt(list(members.items()), true_checksums=False)


def spoil_somewhere(place, rng):
    """Replace a value somewhere in nested dicts and lists by a nonsensical value, or remove it."""
    keys = list(place) if isinstance(place, dict) else range(len(place))
    key = keys[rng.integers(len(keys))]
    if isinstance(place[key], (dict, list)) and place[key] and rng.integers(6):
        spoil_somewhere(place[key], rng)
    elif rng.integers(5):
        place[key] = WRONG_VALUES[rng.integers(len(WRONG_VALUES))]
    else:
        del place[key]


def reordered_lines(data, rng):
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines[: rng.integers(1, len(lines) + 1)] * int(rng.integers(1, 3)))


def wrong_text_value(data, rng):
    """A setting with an impossible or absurdly nested value."""
    values = [
        b"[" * 20_000, b"0x" + b"f" * 6000, b"1" * 6000, b"nan", b"-inf", b"'''", b"1979-05-27T07:32:00Z", b"{a = 1}",
        b"true", b'"\\ud800"', b"\xff\xfe", b"9" * 400, b"-1", b"[1, 2]", b'"x"',
    ]  # fmt: skip
    lines = data.splitlines()
    i = int(rng.integers(len(lines)))
    lines[i] = lines[i].partition(b"=")[0] + b"= " + values[rng.integers(len(values))]
    return b"\n".join(lines)


OF_ANY_FILE = (truncated, flipped, zeroed, spliced)
OF_A_CHECKPOINT = (
    *OF_ANY_FILE, flipped_at_the_end, replaced, swapped, missing_or_strange, wrong_header, wrong_description
)  # fmt: skip
OF_A_CONFIG = (*OF_ANY_FILE, reordered_lines, wrong_text_value)
