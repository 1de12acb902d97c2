//! Fanlight's configuration file: reading, checking, schema, reference.
//!
//! A file is JSON or YAML, or a client's own file ([`crate::client_files`]). [`load`] yields a
//! complete [`Config`], or all problems of the file, each with its position, an excerpt and a hint.
//!
//! `model` defines each option once, with the struct that holds it: key, type, default, range,
//! description, example. `option` turns a definition into a parser. `output` makes the JSON Schema,
//! docs/configuration.md and config/fanlight.yaml from the same definitions.
//!
//! Reading a file: `syntax` (text to a tree of nodes with spans) → `option` (fields of a section,
//! with variables replaced) → `read` (checks between options, servers) → `report` (problems, with
//! secrets masked).
//!
//! Only [`load_all`] and similar functions do I/O: they read files. The crate opens no connection,
//! and reads the process's environment only through the caller's function.

pub mod client_files;
mod definition;
pub mod document;
mod env_file;
mod files;
mod keys;
mod model;
mod option;
mod output;
mod read;
mod reference;
mod report;
pub mod settings;
mod syntax;
mod text_file;
mod units;
mod variables;

use std::path::{Path, PathBuf};

pub use crate::client_files::Input;
pub use crate::document::Position;
pub use crate::settings::{
    EraChoice, ListenAddress, Secret, SessionPolicy, Transport, ValkeyUrl, origin_of,
};
use files::First;
pub use files::{WrittenRight, key_file, load_admin, load_all, load_all_in, load_usable};
pub use keys::{Keys, load_keys, parse_keys, parse_moment, with_key, without_keys, written_moment};
pub use model::Config;
pub use model::audit::{ArgumentsChoice, AuditOptions};
pub use model::auth::oauth::{Claims, Introspection, Issuer, UserSignIn};
pub use model::auth::{Auth, AuthChoice, Key, KeyFile, Proxy, ScopeRules};
pub use model::endpoint::{Endpoint, Lean, Results};
pub use model::hooks::{HookFailure, HookOptions, HookTime, NotifyOptions};
pub use model::life::{LandlockOptions, SandboxOptions, StartChoice};
pub use model::limits::{Budgets, Limits, Timeouts};
pub use model::listener::{ClientAuthChoice, Tls, scheme};
pub use model::operators::{Admin, AdminRoles, ContentChoice, Telemetry, TrustChoice};
pub use model::pins::{PinMode, PinOptions};
pub use model::policy::{AllowedClients, PolicyDefault, PolicyOptions};
pub use model::rates::{Frequency, RateDimension, RateMatch, RateRule, WithoutValkey};
pub use model::replicas::ReplicaOptions;
pub use model::rewriting::{Argument, ArgumentOptions, Naming, NamingStyle, ToolOverride};
pub use model::server::Server;
pub use model::server_auth::{
    IdentityProvider, ResourceParameter, ServerAuth, ServerAuthKind, SubjectTokenType,
};
pub use model::tools::{Approval, ApproverChoice, EntryFilter};
pub use model::values::SealKey;
pub use model::versions::{OtherVersion, Share};
use option::Options as _;
pub use output::reference::reference;
use output::reference::sections;
pub use output::sample::sample;
pub use output::schema::schema;
pub use reference::SecretReference;
pub use report::harmless::may_be_secret;
pub use report::problem::{ConfigErrors, Problem, Severity};
pub use text_file::{ConfigFile, fingerprint};
pub use units::{parse_duration, parse_size};
pub use variables::Environment;

/// The largest size of a config file, in bytes. Not an option, since it applies before options are
/// known.
pub const MAX_FILE_SIZE: usize = 1 << 20;

/// The largest size of a file with keys, in bytes.
pub const MAX_KEY_FILE_SIZE: usize = 8 << 20;

/// A usable config file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The content.
    pub config: Config,
    /// Warnings about settings without effect, or with an effect that their author may not expect;
    /// in the file's order.
    pub warnings: Vec<Problem>,
    /// The first file, as passed to [`load`] or [`parse`].
    pub path: PathBuf,
    /// Every file that was read, the TLS files, and every folder in which an included file may
    /// appear.
    pub files: Vec<ConfigFile>,
    /// The options about clients' rights, in the order of the files.
    pub rights: Vec<WrittenRight>,
}

/// Reads and checks a config file and the files that it includes. `env` looks up the file's
/// variables.
///
/// # Errors
///
/// Every error of the files, or the one reason why one cannot be read.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, ConfigErrors> {
    load_all(&[path.to_owned()], env)
}

/// Whether a server has an option or another key of this name.
pub fn is_server_option(key: &str) -> bool {
    Server::SECTION.find(key).is_some()
}

/// Whether a change of an option takes effect at a reload, instead of after a restart. `section` is
/// `limits` or `timeouts`, or empty for the top level.
pub fn is_live(section: &str, key: &str) -> bool {
    let section = match section {
        "limits" => Limits::SECTION,
        "timeouts" => Timeouts::SECTION,
        _ => Config::SECTION,
    };
    section.find(key).is_some_and(|option| option.is_live)
}

/// Checks the text of a config file without the files that it includes. `origin` is the file's name
/// in messages: its extension distinguishes YAML from JSON, and a relative `cwd` is relative to its
/// folder. `env` looks up the text's variables.
///
/// # Errors
///
/// Every error of the text.
pub fn parse(
    text: &str,
    origin: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, ConfigErrors> {
    let environment = Environment::from_variables(env);
    files::parse_first(
        text,
        origin,
        environment,
        First {
            has_further: false,
            reads_files: false,
            is_lenient: false,
        },
        &mut Default::default(),
    )
}

/// The number of possible keys in a file, each counted once for each kind of section. It leaves out
/// other programs' names of options, former keys that are still read, and `$schema`, which Fanlight
/// does not read.
pub fn option_count() -> usize {
    let keys = sections()
        .into_iter()
        .flat_map(|(_, section)| section.keys());
    keys.filter(|key| *key != "$schema").count()
}

#[cfg(test)]
mod tests {
    /// The bound only falls, to 190 in the end: whoever adds an option removes another one.
    #[test]
    fn options_are_at_most_217() {
        let total = super::option_count();
        assert!(
            total <= 217,
            "{total} options: make one that nobody turns a constant"
        );
    }
}
