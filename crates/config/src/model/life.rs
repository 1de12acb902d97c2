//! The life of a server: the start of its process, health checks, and the process's confinement.

use std::path::{Path, PathBuf};

use crate::settings::{Landlock, SYSTEM_FOLDERS, Sandbox};
use serde_json::json;

use crate::definition::Visible;
use crate::option::{
    Each, Maybe, Nested, Parsed, Reader, Text, checked, choice, count, options, size,
};

const MIB: usize = 1 << 20;

choice! {
    /// The start of a server's process.
    StartChoice, START {
        /// The process starts together with Fanlight.
        Eager = "eager",
        /// The first request that needs the process starts it.
        Lazy = "lazy",
    }
}

options! {
    /// Restrictions for the process of a server and everything that it starts. With any of them it
    /// has no capabilities, can never gain privileges, for example by `sudo`, and can neither
    /// signal nor limit processes of Fanlight.
    pub struct SandboxOptions: "sandbox", "in `sandbox` of a server";
    options {
        /// Files and TCP ports that it can access. Default: those that its user can access.
        "landlock" => landlock: Option<LandlockOptions> = None, Maybe(Nested::<LandlockOptions>::KIND);
        /// The most bytes of private memory for each of its processes. Default: no limit.
        "memory" => memory: Option<usize> = None, Maybe(size(MIB, 1 << 50)), example "1GiB";
        /// The most processes and threads of its user on the whole machine, so it needs a separate
        /// `user`. Default: no limit.
        "processes" => processes: Option<usize> = None, Maybe(count(1, 10_000_000)), example "# 64";
        /// The most open files of each of its processes. Default: Fanlight's limit.
        "files" => files: Option<usize> = None, Maybe(count(3, 10_000_000)), example "256";
        /// The user of the process, by name or number, with that user's group and no other.
        /// Fanlight must run as root. Default: Fanlight's own user.
        "user" => user: Option<String> = None, Maybe(USER), example "# mcp";
    }
}

options! {
    /// Files and TCP ports that a process can access, enforced by the kernel (Landlock, Linux 6.2;
    /// ports: 6.7). Paths are files, or folders with everything in them, relative to the folder of
    /// this file.
    pub struct LandlockOptions: "landlock", "in `landlock` of a sandbox";
    options {
        /// Files that can be read and executed. A list replaces the default. System folders do not
        /// include Fanlight's own files: this file, the files that it names, and `stateDir`.
        "read" => read: Vec<String> = SYSTEM_FOLDERS.iter().map(|path| (*path).to_owned()).collect(), Each(FOLDER), example "[/bin, /etc, /lib, /lib64, /sbin, /usr, .]";
        /// Files that can be read, executed and changed.
        "write" => write: Vec<String> = Vec::new(), Each(FOLDER), example "[/tmp]";
        /// TCP ports that it can connect to. Default: any. An empty list here and in `bind` leaves
        /// it no TCP at all.
        "connect" => connect: Option<Vec<u16>> = None, Maybe(Each(PORT)), example "[\"443\"]";
        /// TCP ports that it can listen on. Default: any. With an empty list it can listen on Unix
        /// sockets only if `connect` is empty, too.
        "bind" => bind: Option<Vec<u16>> = None, Maybe(Each(PORT)), example "[]";
    }
}

impl SandboxOptions {
    /// Makes paths relative to `folder`.
    pub(crate) fn resolve_paths(&mut self, folder: &Path) {
        if let Some(landlock) = &mut self.landlock {
            landlock
                .read
                .iter_mut()
                .chain(&mut landlock.write)
                .for_each(|path| resolve(path, folder));
        }
    }

    /// The confinement of the process. `own_files` are Fanlight's files, which no system folder
    /// makes readable.
    pub fn sandbox(&self, own_files: &[PathBuf]) -> Sandbox {
        let amount = |number: Option<usize>| number.and_then(|number| u64::try_from(number).ok());
        let paths = |paths: &[String]| paths.iter().map(PathBuf::from).collect();
        let landlock = self.landlock.as_ref().map(|landlock| Landlock {
            read: paths(&landlock.read),
            write: paths(&landlock.write),
            connect: landlock.connect.clone(),
            bind: landlock.bind.clone(),
            except: own_files.to_vec(),
        });
        let (memory, processes, files) = (
            amount(self.memory),
            amount(self.processes),
            amount(self.files),
        );
        Sandbox {
            landlock,
            memory,
            processes,
            files,
            user: self.user.clone(),
        }
    }
}

const USER: Parsed<String> = checked!(
    |text| !text.is_empty() && !text.contains(['\0', ':', '/']),
    "is not a user",
    "write the name or the number of a user"
);

/// Warns of a path that a shell would complete.
pub(crate) fn warn_of_tilde(reader: &mut Reader<'_>, path: &Text) {
    if path.value.starts_with("~/") {
        let help = "write `${HOME}/…`";
        reader.warn(path.span, "`~` does not mean the home folder here", help);
    }
}

/// Makes a path relative to `folder`.
pub(crate) fn resolve(path: &mut String, folder: &Path) {
    *path = folder.join(&*path).display().to_string();
}

pub(crate) const FOLDER: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        if text.value.is_empty() || text.value.contains('\0') {
            reader.error(
                text.span,
                "this is not a path",
                "write a file or a folder, such as `/srv/files`",
            );
            return None;
        }
        warn_of_tilde(reader, &text);
        Some(text.value)
    },
    show: |path| json!(path),
};

const PORT: Parsed<u16> = checked!(
    Visible::All,
    |text| text.parse().ok(),
    "is not a port",
    "write a number from 0 to 65535",
    |port: &u16| json!(port.to_string())
);
