//! The environment of a child process. It has few of Fanlight's own variables, which include the
//! secrets of all servers.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use fanlight_config::settings::is_own_variable;

use crate::settings::{ProcessPolicy, Secret};

/// Variables that every process inherits: those that the SDKs' clients pass on, and the time zone,
/// language and temporary folder.
const COMMON: &[&str] = &[
    "HOME", "LANG", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
];

/// Common variables about the user. In a sandbox with `user`, they would describe another user.
const OF_USER: &[&str] = &["HOME", "LOGNAME", "SHELL", "USER"];

/// The environment of a process. Of Fanlight's `own` variables it has the common ones and those
/// that match the policy's patterns; the `set` variables override them.
pub(super) fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
    policy: &ProcessPolicy,
    set: &[(String, Secret)],
) -> BTreeMap<OsString, OsString> {
    let is_other_user = policy.sandbox.user.is_some();
    let is_inherited = |name: &OsStr, value: &OsStr| {
        // Some shells export functions in this form. That is code, which not every program expects
        // in such a variable.
        let is_common = COMMON.iter().any(|pattern| fits(name, pattern))
            && !value.as_encoded_bytes().starts_with(b"()")
            && !(is_other_user && OF_USER.iter().any(|own| name == *own));
        is_common
            || (!is_own(name)
                && policy
                    .inherit_env
                    .iter()
                    .any(|pattern| is_passed_on(name, pattern, policy)))
    };
    let mut all: BTreeMap<_, _> = own
        .filter(|(name, value)| is_inherited(name, value))
        .collect();
    all.extend(
        set.iter()
            .map(|(name, value)| (name.into(), value.expose().into())),
    );
    all
}

/// Whether a variable contains a secret of Fanlight itself.
fn is_own(name: &OsStr) -> bool {
    is_own_variable(&name.to_string_lossy())
}

/// Whether a pattern passes a variable on. Variables of Fanlight's own options may contain secrets,
/// so only their full names do.
fn is_passed_on(name: &OsStr, pattern: &str, policy: &ProcessPolicy) -> bool {
    name == pattern
        || (fits(name, pattern) && !policy.own_variables.iter().any(|own| name == own.as_str()))
}

/// Whether a name matches a pattern. A `*` at the end stands for any text.
fn fits(name: &OsStr, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.as_encoded_bytes().starts_with(start.as_bytes()),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sandbox;

    fn names(inherit: &[&str], set: &[(&str, &str)]) -> Vec<String> {
        names_of(None, inherit, set)
    }

    fn names_of(user: Option<&str>, inherit: &[&str], set: &[(&str, &str)]) -> Vec<String> {
        let own = [
            ("FANLIGHT_ADMIN_TOKEN", "s3cret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
            ("HOME", "/home/me"),
            ("LC_ALL", "C"),
            ("LC", "x"),
            ("PATH", "/bin"),
            ("PATHS", "x"),
            ("TERM", "() { :; }; echo"),
            ("AWS_KEY", "k"),
            ("AWS_REGION", "r"),
        ];
        let own = own
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        let inherit: Vec<String> = inherit.iter().map(|name| (*name).to_owned()).collect();
        let set: Vec<_> = set
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Secret::new(*value)))
            .collect();
        let user = user.map(str::to_owned);
        let sandbox = Sandbox {
            user,
            ..Sandbox::default()
        };
        let own_variables = vec!["AWS_KEY".to_owned()];
        let policy = ProcessPolicy {
            inherit_env: inherit,
            own_variables,
            sandbox,
            ..ProcessPolicy::default()
        };
        let all = environment(own, &policy, &set);
        all.into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect()
    }

    #[test]
    fn environment_has_common_variables_and_no_secret() {
        assert_eq!(names(&[], &[]), ["HOME=/home/me", "LC_ALL=C", "PATH=/bin"]);
    }

    #[test]
    fn environment_of_another_user_has_no_home_of_this_one() {
        assert_eq!(names_of(Some("other"), &[], &[]), ["LC_ALL=C", "PATH=/bin"]);
        assert_eq!(
            names_of(Some("other"), &["HOME"], &[]),
            ["HOME=/home/me", "LC_ALL=C", "PATH=/bin"]
        );
        assert_eq!(
            names_of(Some("other"), &[], &[("HOME", "/srv")]),
            ["HOME=/srv", "LC_ALL=C", "PATH=/bin"]
        );
    }

    #[test]
    fn environment_has_what_the_entry_names() {
        assert_eq!(
            names(&["AWS_REGION"], &[]),
            ["AWS_REGION=r", "HOME=/home/me", "LC_ALL=C", "PATH=/bin"]
        );
        assert_eq!(
            names(&["AWS_R*"], &[("HOME", "/")]),
            ["AWS_REGION=r", "HOME=/", "LC_ALL=C", "PATH=/bin"]
        );
    }

    #[test]
    fn environment_never_has_secrets_of_fanlight() {
        for pattern in ["*", "F*", "FANLIGHT_*", "FANLIGHT_ADMIN_TOKEN"] {
            let names = names(&[pattern, "O*"], &[]);
            assert!(
                !names.iter().any(|name| name.contains("s3cret")),
                "{names:?}"
            );
        }
        assert_eq!(names(&["*"], &[]).len(), 7);
        // A variable of Fanlight's own options is passed on by its full name.
        assert!(!names(&["AWS_*"], &[]).contains(&"AWS_KEY=k".to_owned()));
        assert!(names(&["AWS_KEY"], &[]).contains(&"AWS_KEY=k".to_owned()));
    }
}
