//! The rights of clients: the option `policy`, and the clients in `allow`.

use std::fmt;

use serde_json::json;

use super::values::PATTERN;
use crate::definition::Visible;
use crate::option::{Each, Maybe, OneOrMany, checked, choice, options};

options! {
    /// The rights of clients, by policies in the language Cedar.
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

choice! {
    /// The decision about requests that no policy covers.
    PolicyDefault, DEFAULT {
        /// Requests without a matching policy are denied.
        Deny = "deny",
        /// Requests without a matching policy are allowed.
        Allow = "allow",
    }
}

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

impl AllowedClients {
    /// Reads `group:NAME`, `user:ISSUER#SUBJECT`, `scope:NAME` or `*`.
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            _ if text == "*" => Some(Self::Anybody),
            Some((_, "")) => None,
            Some(("group", name)) => Some(Self::Group(name.to_owned())),
            Some(("user", name)) if name.contains('#') => Some(Self::User(name.to_owned())),
            Some(("scope", name)) => Some(Self::Scope(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for AllowedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "group:{name}"),
            Self::User(name) => write!(f, "user:{name}"),
            Self::Scope(name) => write!(f, "scope:{name}"),
            Self::Anybody => f.write_str("*"),
        }
    }
}

/// One or several kinds of permitted clients.
pub(crate) const WHO: OneOrMany<AllowedClients> = OneOrMany(checked!(
    Visible::All,
    AllowedClients::parse,
    "says nobody",
    "write `group:dev`, `user:key#ci` for the key `ci`, `user:https://idp.example.com#ann` for a subject of an \
     issuer, `scope:files`, or `*`",
    |who: &AllowedClients| json!(who.to_string())
));

/// One or several members of a role: groups and users. `*` and scopes give no role, because they
/// are for calls.
pub(crate) const MEMBERS: OneOrMany<AllowedClients> = OneOrMany(checked!(
    Visible::All,
    |text| AllowedClients::parse(text)
        .filter(|who| matches!(who, AllowedClients::Group(_) | AllowedClients::User(_))),
    "cannot have a role",
    "write `group:platform`, `user:key#ci` for the key `ci`, or `user:https://idp.example.com#ann` for a subject \
     of an issuer",
    WHO.0.show
));
