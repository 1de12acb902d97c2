//! An `.mcpb` bundle: a zip archive with a manifest and a server's program. Its size is bounded,
//! and nothing is written outside its own folder.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use fanlight_config::client_files::{PackagedServer, System, manifest};
use fanlight_config::document::{Source, Syntax};
use zip::ZipArchive;

/// The size limit of the archive, in bytes.
const MAX_ARCHIVE: u64 = 512 << 20;
/// The limit of all unpacked bytes.
const MAX_UNPACKED: u64 = 1 << 30;
/// The limit of files.
const MAX_ENTRIES: usize = 20_000;
/// The size limit of the manifest, in bytes.
const MAX_MANIFEST: u64 = 1 << 20;

/// A bundle to unpack.
pub(super) struct Bundle {
    archive: PathBuf,
    /// The folder to unpack into.
    pub(super) folder: PathBuf,
}

impl Bundle {
    /// Opens a bundle, and returns it with its server. It will be unpacked into a folder in
    /// `bundles`.
    pub(super) fn open(
        path: &Path,
        bundles: &Path,
        system: System,
    ) -> Result<(Self, PackagedServer), String> {
        let mut archive = open(path)?;
        let mut text = String::new();
        let entry = archive
            .by_name("manifest.json")
            .map_err(|_| "it has no manifest.json".to_owned())?;
        let read = entry.take(MAX_MANIFEST + 1).read_to_string(&mut text);
        read.map_err(|error| format!("its manifest cannot be read: {error}"))?;
        if text.len() as u64 > MAX_MANIFEST {
            return Err("its manifest is too large".to_owned());
        }
        let parsed = fanlight_config::document::parse(&Source::new(&text), Syntax::Json);
        let root = parsed
            .map_err(|error| format!("its manifest is {}", error.message))?
            .ok_or("its manifest is empty")?;
        // The folder has the server's name, which consists of letters, digits, `-` and `_`.
        let name = manifest(&root, "", system)?.name;
        let folder = bundles.join(&name);
        let server = manifest(&root, &folder.display().to_string(), system)?;
        Ok((
            Self {
                archive: path.to_owned(),
                folder,
            },
            server,
        ))
    }

    /// Unpacks the whole bundle or nothing. An existing folder is replaced if `replaces`, otherwise
    /// an error.
    pub(super) fn unpack(&self, replaces: bool) -> Result<(), String> {
        if self.folder.exists() && !replaces {
            return Err(format!(
                "{} already exists: --force replaces it",
                self.folder.display()
            ));
        }
        let parent = self.folder.parent().unwrap_or(Path::new("."));
        let failed = |error: std::io::Error| {
            format!("cannot unpack into {}: {error}", self.folder.display())
        };
        fs::create_dir_all(parent).map_err(failed)?;
        let new = tempfile::Builder::new()
            .prefix(".unpacked")
            .tempdir_in(parent)
            .map_err(failed)?;
        unpack_into(&mut open(&self.archive)?, new.path())?;
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).map_err(failed)?;
        }
        fs::rename(new.keep(), &self.folder).map_err(failed)
    }
}

fn open(path: &Path) -> Result<ZipArchive<File>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if length > MAX_ARCHIVE {
        return Err(format!("it is larger than {} MiB", MAX_ARCHIVE >> 20));
    }
    let archive =
        ZipArchive::new(file).map_err(|error| format!("it is not a zip archive: {error}"))?;
    if archive.len() > MAX_ENTRIES {
        return Err(format!("it has more than {MAX_ENTRIES} files"));
    }
    Ok(archive)
}

fn unpack_into(archive: &mut ZipArchive<File>, folder: &Path) -> Result<(), String> {
    let mut left = MAX_UNPACKED;
    for index in 0..archive.len() {
        let entry = archive
            .by_index(index)
            .map_err(|error| format!("a file in it cannot be read: {error}"))?;
        let name = entry
            .name()
            .map_err(|error| format!("a file in it has no name: {error}"))?
            .into_owned();
        let is_within = !name.starts_with('/')
            && !name.contains('\\')
            && !name.split('/').any(|part| part == "..");
        let path = entry.enclosed_name().filter(|_| is_within);
        let Some(path) = path.filter(|_| !entry.is_symlink()) else {
            return Err(format!(
                "its file {name:?} is a link, or would be outside its folder"
            ));
        };
        let failed = |error: std::io::Error| format!("cannot unpack {name:?}: {error}");
        let path = folder.join(path);
        if entry.is_dir() {
            fs::create_dir_all(&path).map_err(failed)?;
            continue;
        }
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .map_err(failed)?;
        let is_program = entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
        left = write(entry, &path, is_program, left).map_err(failed)?;
    }
    Ok(())
}

/// Writes a file of at most `left` bytes, whatever size its header claims. Returns how many bytes
/// are left afterwards.
fn write(entry: impl Read, path: &Path, is_program: bool, left: u64) -> std::io::Result<u64> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let written = std::io::copy(&mut entry.take(left + 1), &mut file)?;
    let left = left.checked_sub(written).ok_or_else(|| {
        std::io::Error::other(format!(
            "the files of the bundle are larger than {} MiB",
            MAX_UNPACKED >> 20
        ))
    })?;
    file.flush()?;
    set_mode(path, is_program)?;
    Ok(left)
}

#[cfg(unix)]
fn set_mode(path: &Path, is_program: bool) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(
        path,
        fs::Permissions::from_mode(if is_program { 0o755 } else { 0o644 }),
    )
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: bool) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use zip::write::SimpleFileOptions;

    use super::*;

    const MANIFEST: &str =
        r#"{"name": "tools", "server": {"type": "node", "entry_point": "server/index.js"}}"#;

    /// Creates a bundle with these files and a manifest; a name that ends with `@` is a link.
    fn bundle(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
        let path = folder.join("x.mcpb");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        let options = SimpleFileOptions::default().unix_permissions(0o755);
        for (name, text) in [("manifest.json", MANIFEST)].iter().chain(files) {
            match name.strip_suffix('@') {
                Some(link) => zip.add_symlink(link, *text, options).unwrap(),
                None => {
                    zip.start_file(*name, options).unwrap();
                    zip.write_all(text.as_bytes()).unwrap();
                }
            }
        }
        zip.finish().unwrap();
        path
    }

    #[test]
    fn bundle_is_unpacked_into_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = bundle(folder.path(), &[("server/index.js", "run()")]);
        let bundles = folder.path().join("bundles");
        let (bundle, server) = Bundle::open(&path, &bundles, System::Linux).unwrap();
        assert!(!bundles.exists(), "nothing is written before");
        bundle.unpack(false).unwrap();
        let program = bundles.join("tools/server/index.js");
        assert_eq!(fs::read_to_string(&program).unwrap(), "run()");
        assert!(
            server.value.to_flow().contains(program.to_str().unwrap()),
            "{server:?}"
        );
        assert!(bundle.unpack(false).unwrap_err().contains("--force"));
        bundle.unpack(true).unwrap();
        let left: Vec<_> = fs::read_dir(&bundles)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["tools"]);
    }

    #[test]
    fn file_outside_of_the_folder_or_a_link_is_refused() {
        for name in [
            "../evil",
            "server/../../evil",
            "/evil",
            "a\\..\\..\\evil",
            "link@",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = bundle(folder.path(), &[(name, "/etc/passwd")]);
            let bundles = folder.path().join("bundles");
            let (bundle, _) = Bundle::open(&path, &bundles, System::Linux).unwrap();
            assert!(bundle.unpack(false).is_err(), "{name}");
            assert!(
                !folder.path().join("evil").exists() && !Path::new("/evil").exists(),
                "{name}"
            );
            assert_eq!(
                fs::read_dir(&bundles).unwrap().count(),
                0,
                "{name}: nothing stays"
            );
        }
    }

    #[test]
    fn file_that_is_larger_than_what_is_left_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            write(&b"12345"[..], &folder.path().join("a"), false, 5).unwrap(),
            0
        );
        assert!(write(std::io::repeat(0), &folder.path().join("b"), false, 1000).is_err());
    }
}
