//! The fuzzers' committed inputs, seeds and former findings, as ordinary tests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{TARGETS, check};

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz")
        .join(path)
}

fn names(path: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder(path))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn committed_inputs_hold_at_bounded_cost() {
    for (name, _) in TARGETS {
        let inputs = names(&format!("corpus/{name}"));
        assert!(!inputs.is_empty(), "{name} has no committed inputs");
        for input in inputs {
            let bytes = fs::read(folder(&format!("corpus/{name}/{input}"))).unwrap();
            println!("{name}/{input}");
            check(name, &bytes);
        }
    }
}

#[test]
fn every_target_has_a_program() {
    let programs: Vec<String> = names("fuzz_targets")
        .iter()
        .map(|file| file.replace(".rs", ""))
        .collect();
    // This target shares its code with the pool's tests.
    let mut targets: Vec<&str> = TARGETS
        .iter()
        .map(|(name, _)| *name)
        .chain(["http_pool"])
        .collect();
    targets.sort_unstable();
    assert_eq!(programs, targets);
}
