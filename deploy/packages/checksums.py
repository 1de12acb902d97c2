"""SHA256SUMS, as `sha256sum --check` reads it."""

import hashlib

NAME = "SHA256SUMS"


def write(folder):
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != NAME)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (folder / NAME).write_text("".join(lines))
    return folder / NAME
