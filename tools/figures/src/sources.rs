//! The counted source files: the program's files, without tests and benchmarks.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::code::Code;

/// A source file with its figures.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) code: Code,
}

/// Reads all sources below `root`.
///
/// # Errors
///
/// Fails if a file cannot be read or is not Rust.
pub(crate) fn read(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for folder in ["crates", "tools/demo"] {
        read_folder(&root.join(folder), &mut sources)?;
    }
    let tests: BTreeSet<PathBuf> = sources.iter().flat_map(test_modules).collect();
    sources.retain(|source| !source.path.ancestors().any(|path| tests.contains(path)));
    Ok(sources)
}

/// Adds the sources of `folder`, except folders named `tests` or `benches`.
fn read_folder(folder: &Path, sources: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if !["tests", "benches"].contains(&entry.file_name().to_str().unwrap_or_default()) {
                read_folder(&path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let code = Code::parse(&fs::read_to_string(&path)?);
            let code =
                code.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            sources.push(Source { path, code });
        }
    }
    Ok(())
}

/// The files and folders of the modules that `source` declares for tests only.
fn test_modules(source: &Source) -> Vec<PathBuf> {
    let folder = match source.path.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") => source.path.parent().unwrap_or(Path::new("")).to_owned(),
        _ => source.path.with_extension(""),
    };
    let modules = source.code.test_modules.iter();
    modules
        .flat_map(|name| [folder.join(format!("{name}.rs")), folder.join(name)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_do_not_count() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("crates/one/src");
        for (name, text) in [
            ("lib.rs", "mod code;\n#[cfg(test)]\nmod helpers;\n"),
            (
                "code.rs",
                "#[cfg(all(test, unix))]\nmod attacks;\nfn f() {}\n",
            ),
            ("helpers.rs", "mod inner;\n"),
            ("helpers/inner.rs", "fn f() {}\n"),
            ("code/attacks.rs", "fn f() {}\n"),
            ("code/tests/all.rs", "fn f() {}\n"),
        ] {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), text).unwrap();
        }
        fs::create_dir_all(root.path().join("tools/demo")).unwrap();
        let found = read(root.path()).unwrap();
        let mut found: Vec<_> = found
            .iter()
            .map(|source| source.path.strip_prefix(&folder).unwrap())
            .collect();
        found.sort();
        assert_eq!(found, [Path::new("code.rs"), Path::new("lib.rs")]);
    }

    #[test]
    fn file_that_is_not_rust_is_named() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("crates")).unwrap();
        fs::write(root.path().join("crates/broken.rs"), "fn {").unwrap();
        let error = read(root.path()).unwrap_err().to_string();
        assert!(error.contains("broken.rs: "), "{error}");
    }
}
