//! The files that patterns match: for `include` and for policies.

use std::path::{Path, PathBuf};

use crate::report::problem::{ConfigErrors, quoted};

/// The most files of one configuration. Not an option, since it applies before options are known.
const MAX_FILES: usize = 256;

/// The files that the patterns of `option` match, in the order of the patterns and of their names,
/// and their folders.
pub(super) fn included(
    option: &str,
    patterns: &[String],
    first: &Path,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), ConfigErrors> {
    let folder = first.parent().unwrap_or(Path::new(""));
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for pattern in patterns {
        let wrong = |message: String| {
            ConfigErrors::of_file(
                first,
                message,
                &format!("see `{option}` in docs/configuration.md"),
            )
        };
        let whole = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(pattern);
        let whole = if Path::new(pattern).is_absolute() {
            PathBuf::from(pattern)
        } else {
            whole
        };
        let found = glob::glob(&whole.to_string_lossy()).map_err(|error| {
            wrong(format!(
                "`{option}` has the pattern {}: {}",
                quoted(pattern),
                error.msg
            ))
        })?;
        let before = files.len();
        for file in found {
            let file =
                file.map_err(|error| wrong(format!("`{option}` cannot read a folder: {error}")))?;
            if file.is_file() && !files.contains(&file) && file != first {
                files.push(file);
            }
        }
        let is_pattern = pattern.contains(['*', '?', '[']);
        if files.len() == before && !is_pattern {
            return Err(wrong(format!(
                "`{option}` names {}, and there is no such file",
                quoted(pattern)
            )));
        }
        if files.len() > MAX_FILES {
            return Err(wrong(format!(
                "`{option}` names more than {MAX_FILES} files"
            )));
        }
        // New files may appear in the folder before the first `*`.
        let plain = Path::new(pattern).components().take_while(|part| {
            let text = part.as_os_str().to_string_lossy();
            !text.contains(['*', '?', '['])
        });
        let plain = folder.join(plain.collect::<PathBuf>());
        if is_pattern && plain.is_dir() && !folders.contains(&plain) {
            folders.push(plain);
        }
    }
    Ok((files, folders))
}
