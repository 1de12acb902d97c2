//! Authentication of clients, and their scopes.

pub(crate) mod oauth;
pub(crate) mod values;

use std::time::SystemTime;

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use super::tools::PatternMap;
use crate::definition::Form;
use crate::option::{
    Each, Flag, Kind, Maybe, NameMap, Nested, OneOrMany, Options as _, Reader, Sections, options,
    suggest,
};
use crate::syntax::{Entry, Value};
use oauth::Issuer;
use values::{FILE, HEADER, NETWORK, SCOPE, TEXT};

/// The word for [`AuthChoice::Open`].
const NONE: &str = "none";

/// Whether clients are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthChoice {
    /// The file does not say: clients are not authenticated, and no listener is opened that other
    /// machines can reach.
    Unset,
    /// Clients are not authenticated, at any address.
    Open,
    /// Clients are authenticated by these methods.
    Required(Box<Auth>),
}

impl AuthChoice {
    /// The methods of authentication, if clients are authenticated.
    pub fn methods(&self) -> Option<&Auth> {
        match self {
            Self::Required(auth) => Some(auth),
            Self::Unset | Self::Open => None,
        }
    }
}

options! {
    /// Authentication of clients over HTTP. The first of these in a request decides: a key or token
    /// in `Authorization`, a TLS certificate, the header of a proxy, the user of a Unix socket. A
    /// request without any is refused. A client over standard input and output is the process that
    /// started Fanlight, and is not authenticated.
    pub struct Auth: "auth", "in `auth`";
    options {
        /// Issuers of accepted OAuth access tokens.
        "oauth" => oauth: Vec<Issuer> = Vec::new(), Sections::<Issuer>::KIND;
        /// Accepted keys.
        "keys" => keys: Option<KeyFile> = None, Maybe(Nested::<KeyFile>::KIND);
        /// Whether a TLS certificate, signed by `tls.clientCa`, authenticates its client. It names
        /// the principal: the URI among its subject alternative names, such as a SPIFFE ID; without
        /// one, the DNS name among them; without either, its subject.
        "certificates" => certificates: bool = false, Flag;
        /// Headers in which a reverse proxy names the user that it has authenticated.
        "proxy" => proxy: Option<Proxy> = None, Maybe(Nested::<Proxy>::KIND);
        /// Whether the user of this machine who has connected is the client, if `listen` is a Unix
        /// socket. The principal is, for example, `uid:1000`.
        "socket" => socket: bool = false, Flag;
        /// Methods that know each person by one subject, the same at all of them: `key`, `proxy`,
        /// `certificate`, or an issuer. Where another person has to approve a call, subjects at
        /// different methods, and the `sub` of an issuer, count as different people only if these
        /// are listed.
        "samePeople" => same_people: Vec<String> = Vec::new(), OneOrMany(TEXT), example "[proxy, https://id.example.com]";
        /// The scopes that requests need.
        "scopes" => scopes: ScopeRules = ScopeRules::default(), Nested::<ScopeRules>::KIND;
    }
}

impl Auth {
    /// Sets of methods that name people alike: different subjects of one set are different people.
    /// A certificate can have one of three kinds of names, and `sub` can be another one for each
    /// client of the issuer (OpenID Connect Core 1.0, 8.1).
    pub fn comparable(&self) -> Vec<Vec<String>> {
        let by_claim = |issuer: &&Issuer| issuer.claims.principal.trim_matches('/') != "sub";
        let issuers = self.oauth.iter().filter(by_claim);
        let alone = issuers.map(|issuer| issuer.issuer.as_str());
        alone
            .chain(["key", "proxy"])
            .map(|method| vec![method.to_owned()])
            .chain([self.same_people.clone()])
            .collect()
    }
}

/// The kind of the option `auth`.
pub(crate) struct AuthKind;

impl Kind for AuthKind {
    type Value = AuthChoice;

    fn form(&self) -> Form {
        Form::WordOr(NONE, Auth::SECTION)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<AuthChoice> {
        if let Value::String(_) = &entry.value.value {
            let text = reader.text(entry)?;
            if text.value == NONE {
                return Some(AuthChoice::Open);
            }
            let help = match suggest(&text.value, &[NONE]) {
                Some(_) => "write `none` for no authentication".to_owned(),
                None => {
                    "write `none`, or a mapping with `oauth`, `keys`, `certificates`, `proxy` or `socket`".to_owned()
                }
            };
            reader.refuse(&text, "is not a value of `auth`", &help);
            return None;
        }
        let auth: Auth = Nested::<Auth>::KIND.read(reader, entry)?;
        check(reader, entry, &auth);
        Some(AuthChoice::Required(Box::new(auth)))
    }

    fn show(&self, value: &AuthChoice) -> Json {
        match value {
            AuthChoice::Unset => Json::Null,
            AuthChoice::Open => json!(NONE),
            AuthChoice::Required(auth) => Json::Object(auth.show()),
        }
    }
}

/// Reports missing and contradictory parts.
fn check(reader: &mut Reader<'_>, entry: &Entry, auth: &Auth) {
    let has_method = ["oauth", "keys", "certificates", "proxy", "socket"]
        .into_iter()
        .any(|method| {
            entry
                .value
                .field(method)
                .is_some_and(|node| !matches!(node.value, Value::Null | Value::Bool(false)))
        });
    if !has_method {
        let help =
            "add `oauth`, `keys`, `certificates`, `proxy` or `socket`, or write `auth: none`";
        reader.error(
            entry.key_span,
            "`auth` names no way in which clients show who they are",
            help,
        );
    }
    let mut require = |section: &str, option: &str, is_missing: bool, help: &str| {
        let node = entry.value.field(section);
        if let Some(node) =
            node.filter(|node| is_missing && !node.is_null() && node.field(option).is_none())
        {
            reader.error(
                node.span,
                format!("`{option}` is missing in `{section}`"),
                help,
            );
        }
    };
    let no_file = auth.keys.as_ref().is_some_and(|keys| keys.file.is_empty());
    require(
        "keys",
        "file",
        no_file,
        "name the file, such as `file: keys.yaml`; `fanlight keys new NAME` adds a key to it",
    );
    let (no_header, no_from) = auth.proxy.as_ref().map_or((false, false), |proxy| {
        (proxy.header.is_empty(), proxy.from.is_empty())
    });
    require(
        "proxy",
        "header",
        no_header,
        "name the header, such as `header: X-Forwarded-User`",
    );
    require(
        "proxy",
        "from",
        no_from,
        "list the addresses of the proxy, such as `from: [10.0.0.0/8]`",
    );
    oauth::check(reader, entry, &auth.oauth);
}

options! {
    /// The scopes that requests need. An endpoint's scopes replace the corresponding ones of
    /// `auth.scopes`. Connecting and requesting the server's description need none. Lists show
    /// everything, whether or not the client may use it.
    pub struct ScopeRules: "scopes", "in `scopes`";
    options {
        /// For lists, resources, prompts, completion and subscriptions. Default: none.
        "read" => read: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE)), example "mcp:read";
        /// For calls of tools, and for their tasks. Default: none.
        "call" => call: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE)), example "mcp:call";
        /// For calls of these tools, in addition to `call`: `files/delete_*`, `delete_*` for every
        /// server, or `files__delete_*` with the server's prefix; `*` stands for any characters.
        "tools" => tools: Option<Vec<(String, Vec<String>)>> = None, Maybe(PatternMap(NameMap(OneOrMany(SCOPE)))), example "{\"files__delete_*\": [files:delete]}";
    }
}

options! {
    /// Keys, which clients send as `Authorization: Bearer <key>`. `fanlight keys` makes, lists and
    /// revokes them.
    pub struct KeyFile: "keys", "in `keys`";
    options {
        /// The file with the digests of the keys, relative to the folder of this file. A change
        /// takes effect at once.
        "file" => file: String = String::new(), FILE, example "keys.yaml";
    }
    fields {
        /// The keys in that file.
        keys: Vec<Key> = Vec::new();
    }
}

/// A key of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The name of its clients, which is their principal.
    pub name: String,
    /// The SHA-256 digest of the key.
    pub sha256: [u8; 32],
    /// The groups of its clients.
    pub groups: Vec<String>,
    /// Their scopes; `None` for all.
    pub scopes: Option<Vec<String>>,
    /// The time at which it expires, if any.
    pub expires: Option<SystemTime>,
    /// The paths of the endpoints for which it is valid; `None` for all.
    pub endpoints: Option<Vec<String>>,
}

options! {
    /// Headers in which a reverse proxy names the user that it has authenticated. They count only
    /// on connections from the addresses in `from`, and the proxy must remove these headers from
    /// its clients' requests.
    pub struct Proxy: "proxy", "in `proxy`";
    options {
        /// The header with the name of the user.
        "header" => header: String = String::new(), HEADER, example "X-Forwarded-User";
        /// The header with the user's groups, separated by commas. Default: none.
        "groups" => groups: Option<String> = None, Maybe(HEADER), example "X-Forwarded-Groups";
        /// The addresses of the proxy, as networks.
        "from" => from: Vec<IpNet> = Vec::new(), Each(NETWORK), example "[10.0.0.0/8]";
    }
}
