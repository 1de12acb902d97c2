"""Empty roots: folders in which a program sees only the processes and devices of this machine."""

import os
import pathlib
import subprocess

# A namespace for each start has the mounts that the program needs, and ends with the program, so
# that nothing is left.
ENTER = """
mount --bind "$1" "$1"
[ -d "$1/proc" ] && mount -t proc proc "$1/proc"
[ -d "$1/dev" ] && mount --rbind /dev "$1/dev"
[ "$2" = read-only ] && { mount -o remount,bind,ro "$1"; mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"; }
root=$1 user=$3; shift 3
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp ${TOKEN:+FANLIGHT_ADMIN_TOKEN="$TOKEN"} \\
  setpriv --no-new-privs chroot --userspec="$user:$user" --groups="" "$root" "$@"
"""


def enter(root, command, user=65534, read_only=False):
    """The command that runs `command` in a root as an unprivileged user."""
    mode = "read-only" if read_only else "writable"
    return ["unshare", "--mount", "sh", "-c", ENTER, "enter", str(root), mode, str(user), *command]


def add_libraries(root, program):
    """Copies a program's libraries into a root without a system."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for word in listed.split():
        if word.startswith("/"):
            target = root / pathlib.Path(word).relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(pathlib.Path(word).read_bytes())
            target.chmod(0o755)


def files(root):
    """All paths below a root, each with its kind, size and link, which reveal a change."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in folders + names:
            path = pathlib.Path(folder, name)
            status = path.lstat()
            size = 0 if path.is_dir() and not path.is_symlink() else status.st_size
            found[str(path.relative_to(root))] = (status.st_mode, size, os.readlink(path) if path.is_symlink() else None)
    return found
