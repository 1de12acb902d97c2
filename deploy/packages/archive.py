"""Archives, with the same bytes for the same content."""

import gzip
import io
import tarfile
import time
import zipfile

from .program import REPOSITORY, release_time, version


def tar_gz(path, entries):
    """Writes a .tar.gz. Each entry is (name, content, mode)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, mode in entries:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), mode, release_time()
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return path


def zip_file(path, entries):
    """Writes a .zip. Each entry is (name, content, mode)."""
    # A ZIP file's times have no time zone, steps of two seconds, and begin in 1980.
    date = zip_date(release_time())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name, date)
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return path


def zip_date(seconds):
    return time.gmtime(max(seconds, 315532800))[:6]


def make(program, out):
    """The archive of plain files: the program, its licence, completions and manual pages, and on Linux the systemd unit."""
    folder = f"fanlight-{version()}-{program.platform.target}"
    entries = [
        (f"{folder}/{program.file_name}", program.path.read_bytes(), 0o755),
        *((f"{folder}/{name}", (REPOSITORY / name).read_bytes(), 0o644) for name in ["LICENSE", "README.md", "CHANGELOG.md"]),
        *((f"{folder}/completions/{name}", text, 0o644) for name, text in program.completions().values()),
        *((f"{folder}/man/man1/{name}", page, 0o644) for name, page in program.manual().items()),
    ]
    if "linux" in program.platform.target:
        entries.append((f"{folder}/fanlight.service", (REPOSITORY / "deploy/fanlight.service").read_bytes(), 0o644))
    if "windows" in program.platform.target:
        return [zip_file(out / f"{folder}.zip", entries)]
    return [tar_gz(out / f"{folder}.tar.gz", entries)]
