//! The files and TCP ports of a sandbox, restricted by Landlock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fanlight_config::settings::{Landlock, SYSTEM_FOLDERS};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus,
};

use super::option;

/// The first version that restricts every change of a file, including truncation (Linux 6.2).
const FILES: ABI = ABI::V3;

/// Devices without content, which nearly every program opens.
const DEVICES: [&str; 5] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];

/// Restricts this process and its descendants, for good.
pub(super) fn restrict(landlock: &Landlock) -> io::Result<()> {
    let status = rules(landlock).and_then(RulesetCreated::restrict_self).map_err(|error| {
        let needs =
            "the system cannot enforce it: it needs Linux 6.2, and 6.7 for TCP ports, with Landlock switched on";
        option("landlock", format!("{needs} ({error})"))
    })?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        weaker => Err(option(
            "landlock",
            format!("the system enforces only a part of it ({weaker:?})"),
        )),
    }
}

fn rules(landlock: &Landlock) -> Result<RulesetCreated, RulesetError> {
    let ports = [
        (&landlock.connect, AccessNet::ConnectTcp),
        (&landlock.bind, AccessNet::BindTcp),
    ];
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(FILES))?;
    for (_, access) in ports.iter().filter(|(ports, _)| ports.is_some()) {
        ruleset = ruleset.handle_access(*access)?;
    }
    let mut created = ruleset.create()?;
    // The real location of a file counts, whatever links lead to it.
    let except: Vec<PathBuf> = landlock
        .except
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    for path in &landlock.read {
        let is_of_system = SYSTEM_FOLDERS
            .iter()
            .any(|folder| path == Path::new(folder));
        created = allow_except(created, path, if is_of_system { &except } else { &[] })?;
    }
    for path in &landlock.write {
        created = allow(created, path, AccessFs::from_all(FILES))?;
    }
    for device in DEVICES {
        created = allow(
            created,
            Path::new(device),
            AccessFs::ReadFile | AccessFs::WriteFile,
        )?;
    }
    for (ports, access) in ports {
        for port in ports.iter().flatten() {
            created = created.add_rule(NetPort::new(*port, access))?;
        }
    }
    Ok(created)
}

/// Allows reading a path, except for those in `except`. Landlock can only allow. So in a folder
/// that contains one of them, each other entry is allowed separately.
fn allow_except(
    created: RulesetCreated,
    path: &Path,
    except: &[PathBuf],
) -> Result<RulesetCreated, RulesetError> {
    let (mut created, mut pending) = (created, vec![path.to_owned()]);
    while let Some(path) = pending.pop() {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if except.iter().any(|own| real.starts_with(own)) {
            continue;
        }
        if except.iter().any(|own| own.starts_with(&real)) {
            let entries = fs::read_dir(&real).into_iter().flatten().flatten();
            // The target of a link has its own place.
            let own =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
            pending.extend(own.map(|entry| entry.path()));
        } else {
            created = allow(created, &path, AccessFs::from_read(FILES))?;
        }
    }
    Ok(created)
}

/// Allows a path. A path that does not exist cannot be allowed, which only restricts more.
fn allow(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else {
        use std::io::Write as _;
        let _ = writeln!(
            io::stderr(),
            "sandbox.landlock: {} does not exist, or cannot be opened",
            path.display()
        );
        return Ok(created);
    };
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(FILES)
    };
    created.add_rule(PathBeneath::new(file, access))
}
