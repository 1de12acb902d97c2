//! The rights of clients: the option `policy`, and the clients in `allow`.

use serde_json::json;

use super::values::PATTERN;
use crate::definition::Visible;
use crate::option::kind::{Choice, Each, Maybe, Parsed};
use crate::option::options;
use crate::option::several::OneOrMany;

options! {
    /// The rights of clients, by policies in the language Cedar.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PolicyOptions: "policy", "in `policy`";
    options {
        /// Files with policies, or with template links if their names end with `.json`, relative to
        /// the folder of this file; `*` stands for any text in a name. A change takes effect at
        /// once; if a policy is wrong, the earlier ones stay in force.
        "files" => files: Vec<String> = Vec::new(), Each(PATTERN), example "[policies/*.cedar]";
        /// The decision about requests that no policy covers. Default: `deny` if there are `files`,
        /// else `allow`.
        "default" => default: Option<PolicyDefault> = None, Maybe(DEFAULT), example "deny";
    }
    fields {
        /// The found files, by their paths in the configuration's notation, with their texts.
        texts: Vec<(String, String)> = Vec::new();
    }
}

/// The decision about requests that no policy covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDefault {
    /// They are allowed.
    Allow,
    /// They are denied.
    Deny,
}

const DEFAULT: Choice<PolicyDefault> = Choice(&[
    ("deny", PolicyDefault::Deny),
    ("allow", PolicyDefault::Allow),
]);

/// Clients that may use something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedClients {
    /// The members of a group.
    Group(String),
    /// A client: the issuer, `#`, and the subject.
    User(String),
    /// The clients with a scope.
    Scope(String),
    /// Everybody.
    Anybody,
}

/// One or several kinds of permitted clients.
pub(crate) const WHO: OneOrMany<AllowedClients> = OneOrMany(Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let who = match text.value.split_once(':') {
            _ if text.value == "*" => Some(AllowedClients::Anybody),
            Some((_, "")) => None,
            Some(("group", name)) => Some(AllowedClients::Group(name.to_owned())),
            Some(("user", name)) if name.contains('#') => {
                Some(AllowedClients::User(name.to_owned()))
            }
            Some(("scope", name)) => Some(AllowedClients::Scope(name.to_owned())),
            _ => None,
        };
        if who.is_none() {
            let help = "write `group:dev`, `user:key#ci` for the key `ci`, `user:https://idp.example.com#ann` for a subject of an \
                        issuer, `scope:files`, or `*`";
            reader.error(text.span, format!("{} says nobody", text.shown()), help);
        }
        who
    },
    show: |who| match who {
        AllowedClients::Group(name) => json!(format!("group:{name}")),
        AllowedClients::User(name) => json!(format!("user:{name}")),
        AllowedClients::Scope(name) => json!(format!("scope:{name}")),
        AllowedClients::Anybody => json!("*"),
    },
});

impl Default for PolicyOptions {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}
