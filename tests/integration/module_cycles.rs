//! No cycles between modules: if a module uses its neighbour, directly or through other modules,
//! the neighbour does not use it. Parent and child may use each other.
//!
//! The test reads `use` declarations and paths that begin with `crate::` or `super::`. A name that
//! a module imports from another one leads to that one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The maximum number of imports followed for one path.
const MAX_REEXPORTS: usize = 8;

/// A module's path within its crate.
type Module = Vec<String>;

/// The modules of the crate whose sources are in `root`, with their text. Tests are left out.
fn modules(root: &Path, path: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            modules(&entry.path(), &[path.as_slice(), &[name]].concat(), found);
        } else if let Some(stem) = name
            .strip_suffix(".rs")
            .filter(|stem| !matches!(*stem, "tests" | "testing"))
        {
            let mut module = path.clone();
            if !matches!(stem, "mod" | "lib" | "main") {
                module.push(stem.to_owned());
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let code = text
                .split("#[cfg(test)]\nmod tests")
                .next()
                .unwrap_or_default();
            let code: Vec<_> = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            found.insert(module, code.join("\n"));
        }
    }
}

/// The paths that a text uses: `use` declarations, with nested ones, and others that begin with
/// `crate::` or `super::`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for declaration in code.split("use ").skip(1) {
        expand(
            &[],
            declaration.split(';').next().unwrap_or_default(),
            &mut paths,
        );
    }
    for keyword in ["crate::", "super::"] {
        for (at, _) in code.match_indices(keyword) {
            let path = code[at..]
                .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .next();
            paths.push(
                path.unwrap_or_default()
                    .split("::")
                    .map(str::to_owned)
                    .collect(),
            );
        }
    }
    paths
}

/// Adds the paths of one `use` tree below `prefix`.
fn expand(prefix: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, character) in tree.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    for part in parts.into_iter().map(str::trim) {
        let (path, nested) = match part.split_once('{') {
            Some((path, rest)) => (path, rest.strip_suffix('}')),
            None => (part.split(" as ").next().unwrap_or_default(), None),
        };
        let segments = path
            .split("::")
            .filter(|segment| !segment.is_empty())
            .map(|segment| segment.trim().to_owned());
        let path = [prefix, &segments.collect::<Vec<_>>()].concat();
        match nested {
            Some(nested) => expand(&path, nested, paths),
            None => paths.push(path),
        }
    }
}

/// The module that `path` leads to from `module`, if this crate has it.
fn resolve(all: &BTreeMap<Module, String>, module: &Module, path: &[String]) -> Option<Module> {
    let mut target = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module, &path[1..]].concat(),
        "super" => {
            let ups = path
                .iter()
                .take_while(|segment| *segment == "super")
                .count();
            [&module[..module.len().saturating_sub(ups)], &path[ups..]].concat()
        }
        _ => return None,
    };
    for _ in 0..MAX_REEXPORTS {
        let of_module = (0..=target.len())
            .rev()
            .find(|end| all.contains_key(&target[..*end]))
            .unwrap_or(0);
        let Some(name) = target.get(of_module) else {
            break;
        };
        let Some(import) = import(all, &target[..of_module], name) else {
            break;
        };
        target = [&import[..], &target[of_module + 1..]].concat();
    }
    while !target.is_empty() && !all.contains_key(&target) {
        target.pop();
    }
    Some(target)
}

/// The path from the crate's root that `name` stands for if `module` imports it.
fn import(all: &BTreeMap<Module, String>, module: &[String], name: &str) -> Option<Module> {
    let code = all.get(module)?;
    let import = paths(code)
        .into_iter()
        .find(|path| path.len() > 1 && path.last().is_some_and(|last| last == name))?;
    match import[0].as_str() {
        "crate" => Some(import[1..].to_vec()),
        "super" => Some([&module[..module.len().checked_sub(1)?], &import[1..]].concat()),
        "self" => Some([module, &import[1..]].concat()),
        child => all
            .contains_key(&[module, &[child.to_owned()]].concat())
            .then(|| [module, &import].concat()),
    }
}

/// The cycles in the crate whose sources are in `root`, as pairs of mutually dependent neighbours.
fn cycles(root: &Path) -> Vec<String> {
    let mut all = BTreeMap::new();
    modules(root, &Vec::new(), &mut all);
    assert!(!all.is_empty(), "no modules in {}", root.display());
    // For each parent: its children, and the siblings that each of them uses.
    let mut uses: BTreeMap<&[String], BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    for (module, code) in &all {
        for target in paths(code)
            .iter()
            .filter_map(|path| resolve(&all, module, path))
        {
            let common = module
                .iter()
                .zip(&target)
                .take_while(|(one, other)| one == other)
                .count();
            if let (Some(user), Some(used)) = (module.get(common), target.get(common)) {
                uses.entry(&module[..common])
                    .or_default()
                    .entry(user)
                    .or_default()
                    .insert(used.clone());
            }
        }
    }
    let mut cycles = Vec::new();
    for (parent, children) in &uses {
        for (user, used) in children {
            let mut reached: BTreeSet<&str> = used.iter().map(String::as_str).collect();
            let mut open: Vec<&str> = reached.iter().copied().collect();
            while let Some(next) = open.pop() {
                let further = children.get(next).into_iter().flatten().map(String::as_str);
                open.extend(further.filter(|further| reached.insert(further)));
            }
            if reached.contains(user) {
                cycles.push(format!("{}::{user}", parent.join("::")));
            }
        }
    }
    cycles
}

/// The folders of all crates of the workspace, except its tests' crate.
fn crates() -> impl Iterator<Item = PathBuf> {
    ["crates", "tools"].into_iter().flat_map(|parent| {
        let parent = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(parent);
        parent
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("Cargo.toml").exists())
    })
}

#[test]
fn modules_of_each_crate_have_no_cycles() {
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let found: BTreeMap<_, _> = crates()
        .map(|path| (name(&path), cycles(&path.join("src"))))
        .collect();
    assert!(
        found.len() > 20,
        "crates were not found: {:?}",
        found.keys()
    );
    let cyclic: BTreeMap<_, _> = found
        .into_iter()
        .filter(|(_, cycles)| !cycles.is_empty())
        .collect();
    assert!(
        cyclic.is_empty(),
        "modules that use themselves through neighbours: {cyclic:#?}"
    );
}

#[test]
fn path_through_a_re_export_leads_to_its_module() {
    let module = |path: &str| {
        path.split("::")
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect::<Module>()
    };
    let all = BTreeMap::from([
        (module(""), "pub use a::Name;".to_owned()),
        (module("a"), "pub(crate) use inner::Name;".to_owned()),
        (module("a::inner"), String::new()),
        (module("b"), String::new()),
    ]);
    assert_eq!(
        resolve(&all, &module("b"), &module("crate::Name")),
        Some(module("a::inner"))
    );
    assert_eq!(
        resolve(&all, &module("b"), &module("super::a::Name::new")),
        Some(module("a::inner"))
    );
}

#[test]
fn use_trees_are_expanded() {
    let code = "use crate::a::{self, b::{C, d}};\nfn f() { super::e::g() }";
    let found: Vec<_> = paths(code).iter().map(|path| path.join("::")).collect();
    for path in [
        "crate::a::self",
        "crate::a::b::C",
        "crate::a::b::d",
        "super::e::g",
    ] {
        assert!(
            found.iter().any(|one| one == path),
            "{path} is not in {found:?}"
        );
    }
}
