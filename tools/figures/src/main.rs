//! Counts the code of the product and its tools: `cargo run -p fanlight-figures`.
//!
//! docs/architecture.md shows the result. A test fails if the code has grown away from that table,
//! or if the list of files on a call's path names a missing file. `UPDATE_GENERATED=1 cargo test -p
//! fanlight-figures` writes the table.

mod code;
mod document;
mod figures;
mod pages;
mod sources;

use std::path::Path;
use std::process::ExitCode;

use figures::Figures;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match Figures::count(&root) {
        Ok(figures) => {
            print!("{}", figures.table());
            if let Some(size) = release_size(&root) {
                println!("\nSize of target/release/fanlight: {size:.1} MB");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The size of the release binary in MB, if there is one.
fn release_size(root: &Path) -> Option<f64> {
    let bytes = root.join("target/release/fanlight").metadata().ok()?.len();
    Some((bytes / 100_000) as f64 / 10.0)
}
