//! Becomes another program on a simulated system without Landlock: for the program and its
//! children, Landlock's system calls fail as on such a kernel.
//!
//! `without-landlock unknown|disabled PROGRAM [ARGUMENT…]`: a kernel without Landlock, or one that
//! has it disabled.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let error = match (arguments.next(), arguments.next()) {
        (Some(how), Some(program)) => linux::become_program(&how, &program, arguments),
        _ => "usage: without-landlock unknown|disabled PROGRAM [ARGUMENT…]".into(),
    };
    eprintln!("without-landlock: {error}");
    ExitCode::FAILURE
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::ffi::{OsStr, OsString};
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    /// `landlock_create_ruleset`, `landlock_add_rule` and `landlock_restrict_self`, on all
    /// architectures.
    const CALLS: [i64; 3] = [444, 445, 446];
    /// `ENOSYS`
    const UNKNOWN: u32 = 38;
    /// `EOPNOTSUPP`
    const DISABLED: u32 = 95;

    /// Replaces this process by the program; returns only after a failure.
    pub(super) fn become_program(
        how: &OsStr,
        program: &OsStr,
        arguments: impl Iterator<Item = OsString>,
    ) -> Box<dyn Error> {
        let number = if how == "disabled" { DISABLED } else { UNKNOWN };
        match forbid(number) {
            Ok(()) => Command::new(program).args(arguments).exec().into(),
            Err(error) => error,
        }
    }

    fn forbid(number: u32) -> Result<(), Box<dyn Error>> {
        let rules = CALLS.map(|call| (call, Vec::new())).into_iter().collect();
        let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(number));
        let filter = SeccompFilter::new(rules, others, these, std::env::consts::ARCH.try_into()?)?;
        Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
    }
}
