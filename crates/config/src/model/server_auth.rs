//! The credentials for a server: the option `auth` of a server.

use crate::settings::Secret;
use fanlight_protocol::header::is_of_transport;
use http::header::HOST;
use http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use super::auth::values::{CLIENT_SECRET, FILE, ISSUER, SCOPE, TEXT, URI};
use crate::definition::{Form, Visible};
use crate::option::{
    Flag, Kind, Maybe, Nested, OneOrMany, Options as _, Parsed, Reader, checked, choice, options,
};
use crate::report::mask::HIDDEN;
use crate::report::problem::quoted;
use crate::syntax::{Entry, Node, Value};

choice! {
    /// The kind of credentials that a server gets.
    ServerAuthKind, KIND {
        /// A user name and a password in the configuration.
        Basic = "basic",
        /// A token that Fanlight gets as a client of its own (RFC 6749, 4.4).
        ClientCredentials = "clientCredentials",
        /// A token that Fanlight gets for the identity of its workload (RFC 7523, 2.1).
        Workload = "workload",
        /// A token that is exchanged for another one (RFC 8693).
        Exchange = "exchange",
        /// A token that is granted for an assertion of the identity provider of the enterprise.
        Enterprise = "enterprise",
        /// A token that each user gets by signing in.
        User = "user",
        /// A key that each user deposits.
        UserKey = "userKey",
    }
}

choice! {
    /// Whether token requests contain the server's URL (RFC 8707).
    ResourceParameter, RESOURCE {
        /// Requests contain the URL.
        Send = "send",
        /// Requests omit the URL, since some authorization servers refuse the parameter.
        Omit = "omit",
    }
}

choice! {
    /// The type of an exchanged token.
    SubjectTokenType, SUBJECT {
        /// An access token.
        AccessToken = "accessToken",
        /// An ID token of OpenID Connect.
        IdToken = "idToken",
        /// A refresh token.
        RefreshToken = "refreshToken",
        /// Another JWT.
        Jwt = "jwt",
    }
}

options! {
    /// The credentials for an HTTP server. Fanlight asks the server for its authorization server,
    /// unless `issuer` or `tokenEndpoint` names it
    /// ([server-credentials.md](server-credentials.md)).
    pub struct ServerAuth: "serverAuth", "in `auth` of a server";
    options {
        /// The owner of the credentials: with `basic`, `clientCredentials` and `workload`,
        /// Fanlight; with `user` and `userKey`, each user. With `exchange` and
        /// `enterprise` it is the subject of `tokenFile`, or without that each user, who signs in
        /// at the issuer of `auth.oauth` with `signIn`.
        "type" => kind: ServerAuthKind = ServerAuthKind::User, KIND, example "clientCredentials";
        /// `basic`: the user name.
        "username" => username: Option<String> = None, Maybe(USERNAME), example "# fanlight";
        /// `basic`: the password.
        "password" => password: Option<Secret> = None, Maybe(CLIENT_SECRET), example "# \"${PASSWORD}\"";
        /// `userKey`: the header for the key.
        "header" => header: String = "Authorization".to_owned(), KEY_HEADER, example "# X-API-Key";
        /// `userKey`: the text before the key in the header, such as `Bearer` and a space.
        "prefix" => prefix: String = String::new(), KEY_PREFIX, example "# \"Bearer \"";
        /// `user` and `userKey`: whether users who have not signed in see a tool `connect` instead
        /// of the server's tools.
        "connectTool" => connect_tool: bool = false, Flag, example "true";
        /// Fanlight's client identifier at the authorization server.
        "clientId" => client_id: Option<String> = None, Maybe(TEXT), example "fanlight";
        /// Its secret there.
        "clientSecret" => client_secret: Option<Secret> = None, Maybe(CLIENT_SECRET), example "${CLIENT_SECRET:-change-me}";
        /// Its private key there instead of a secret (PEM, in PKCS #8): RSA, P-256, P-384 or
        /// Ed25519.
        "key" => key: Option<Secret> = None, Maybe(CLIENT_SECRET), example "# \"${CLIENT_KEY}\"";
        /// The identifier of the authorization server; Fanlight refuses another one that the server
        /// names.
        "issuer" => issuer: Option<String> = None, Maybe(ISSUER), example "https://id.example.com";
        /// The token endpoint; https, or http on this machine. Default: from the authorization
        /// server's metadata.
        "tokenEndpoint" => token_endpoint: Option<String> = None, Maybe(URI), example "# https://id.example.com/token";
        /// The requested scopes. Default: the scopes that the server requires.
        "scopes" => scopes: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE)), example "[read]";
        /// Whether token requests contain the server's URL (RFC 8707). Use `omit` for authorization
        /// servers that refuse the parameter, such as Entra.
        "resourceParameter" => resource_parameter: ResourceParameter = ResourceParameter::Send, RESOURCE;
        /// `exchange`: the authorization server's name for the server.
        "audience" => audience: Option<String> = None, Maybe(TEXT), example "# crm";
        /// The file with the token to exchange: with `workload` the platform's assertion, with
        /// `exchange` and `enterprise` the subject's token. Relative to the folder of this file;
        /// read again for each new token.
        "tokenFile" => token_file: Option<String> = None, Maybe(FILE), example "# /var/run/secrets/tokens/lake";
        /// `exchange` and `enterprise`: the type of that token. Default: `accessToken` with
        /// `exchange`, `idToken` with `enterprise`.
        "subjectTokenType" => subject_token_type: Option<SubjectTokenType> = None, Maybe(SUBJECT), example "# idToken";
        /// `enterprise` with `tokenFile`: the enterprise's identity provider.
        "idp" => idp: Option<IdentityProvider> = None, Maybe(Nested::<IdentityProvider>::KIND), example "# {issuer: \"https://login.example.com\", clientId: fanlight}";
    }
}

options! {
    /// An enterprise's identity provider, and Fanlight's registration there.
    pub struct IdentityProvider: "identityProvider", "in `idp` of a server's `auth`";
    options {
        /// The issuer's identifier.
        "issuer" => issuer: String = String::new(), ISSUER, example "https://login.example.com";
        /// Fanlight's client identifier there.
        "clientId" => client_id: Option<String> = None, Maybe(TEXT), example "fanlight";
        /// Its secret there.
        "clientSecret" => client_secret: Option<Secret> = None, Maybe(CLIENT_SECRET), example "${IDP_SECRET}";
    }
}

impl ServerAuthKind {
    /// Whether another token is exchanged for this one.
    pub fn is_exchange(self) -> bool {
        matches!(self, Self::Exchange | Self::Enterprise)
    }

    /// The options that this kind requires.
    fn required(self) -> &'static [&'static str] {
        match self {
            Self::Basic => &["username", "password"],
            Self::ClientCredentials => &["clientId"],
            Self::Workload => &["tokenFile"],
            Self::Exchange | Self::Enterprise | Self::User | Self::UserKey => &[],
        }
    }

    /// Whether an option has an effect on this kind.
    fn takes(self, option: &str) -> bool {
        let kinds: &[Self] = match option {
            "type" => return true,
            "username" | "password" => &[Self::Basic],
            "header" | "prefix" => &[Self::UserKey],
            "connectTool" => &[Self::User, Self::UserKey],
            "idp" => &[Self::Enterprise],
            "audience" => &[Self::Exchange],
            "subjectTokenType" => &[Self::Exchange, Self::Enterprise],
            "tokenFile" => &[Self::Workload, Self::Exchange, Self::Enterprise],
            "tokenEndpoint" => &[Self::ClientCredentials, Self::Workload, Self::Exchange],
            _ => &[
                Self::ClientCredentials,
                Self::Workload,
                Self::Exchange,
                Self::Enterprise,
                Self::User,
            ],
        };
        kinds.contains(&self)
    }
}

impl ServerAuth {
    /// Credentials of this kind with every option at its default.
    pub fn new(kind: ServerAuthKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    /// The settings without secrets, which may be rotated.
    pub fn without_secrets(&self) -> Self {
        let idp = self.idp.clone().map(|idp| IdentityProvider {
            client_secret: None,
            ..idp
        });
        Self {
            password: None,
            client_secret: None,
            key: None,
            idp,
            ..self.clone()
        }
    }

    /// Whether each user has credentials of their own.
    pub fn is_of_users(&self) -> bool {
        let is_own = matches!(self.kind, ServerAuthKind::User | ServerAuthKind::UserKey);
        is_own || (self.kind.is_exchange() && self.token_file.is_none())
    }
}

/// The kind of the option `auth` of a server.
pub(crate) struct ServerAuthOption;

impl Kind for ServerAuthOption {
    type Value = ServerAuth;

    fn form(&self) -> Form {
        Form::Section(ServerAuth::SECTION)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<ServerAuth> {
        if !reader.is_own && entry.value.field("type").is_none() {
            // Some clients have a setting with this name.
            let help = "`auth` of Fanlight has a `type`, such as `user`";
            reader.warn(entry.key_span, "`auth` has no effect here", help);
            return None;
        }
        let auth: ServerAuth = Nested::<ServerAuth>::KIND.read(reader, entry)?;
        check(reader, &entry.value, &auth);
        Some(auth)
    }

    fn show(&self, value: &ServerAuth) -> Json {
        let mut shown = value.show();
        shown.retain(|option, _| value.kind.takes(option));
        Json::Object(shown)
    }
}

/// Reports missing, ineffective and contradictory parts.
fn check(reader: &mut Reader<'_>, node: &Node, auth: &ServerAuth) {
    let Value::Map(entries) = &node.value else {
        return;
    };
    let word = KIND
        .0
        .iter()
        .find(|(_, kind)| *kind == auth.kind)
        .map_or("", |(word, _)| *word);
    let is_there = |key: &str| {
        entries
            .iter()
            .any(|entry| entry.key == key && !entry.value.is_null())
    };
    for key in auth.kind.required().iter().filter(|key| !is_there(key)) {
        let help = format!("add it: `type: {word}` needs it");
        reader.error(
            node.span,
            format!("{} is missing in `auth` of a server", quoted(key)),
            &help,
        );
    }
    let is_idle = |entry: &&Entry| {
        ServerAuth::SECTION
            .find(&entry.key)
            .is_some_and(|option| !auth.kind.takes(option.key))
    };
    for entry in entries.iter().filter(is_idle) {
        let message = format!("{} has no effect with `type: {word}`", quoted(&entry.key));
        reader.error(
            entry.key_span,
            message,
            "remove it, or choose another `type`",
        );
    }
    let mut conflict = |is_wrong: bool, message: &str, help: &str| {
        if is_wrong {
            reader.error(node.span, message, help);
        }
    };
    let (has_secret, has_key) = (is_there("clientSecret"), is_there("key"));
    conflict(
        has_secret && has_key,
        "both `clientSecret` and `key` are given",
        "keep one of the two",
    );
    let is_nobody = auth.kind == ServerAuthKind::ClientCredentials && !has_secret && !has_key;
    conflict(
        is_nobody,
        "neither `clientSecret` nor `key` is given",
        "add the one that the authorization server knows",
    );
    let is_unnamed = (has_secret || has_key) && !is_there("clientId");
    conflict(
        is_unnamed,
        "`clientId` is missing beside `clientSecret` or `key`",
        "add it",
    );
    let is_named = is_there("issuer") || is_there("tokenEndpoint");
    // Each user connects for a first time, so a later server cannot be told from the first one.
    let is_for_anybody = auth.is_of_users() && (has_secret || has_key) && !is_named;
    let help = "add the authorization server that knows the client: otherwise the server says who is shown the secret";
    conflict(
        is_for_anybody,
        "`issuer` is missing beside `clientSecret` or `key`",
        help,
    );
    let is_given_to_anybody = auth.kind == ServerAuthKind::Exchange && !is_named;
    let help = "add the authorization server that exchanges the token: otherwise the server says who gets it";
    conflict(
        is_given_to_anybody,
        "neither `issuer` nor `tokenEndpoint` is given",
        help,
    );
    let is_for_nobody = is_there("tokenEndpoint") && has_key && !is_there("issuer");
    conflict(
        is_for_nobody,
        "`issuer` is missing beside `tokenEndpoint` and `key`",
        "add it: what is signed is for it",
    );
    let (has_file, has_idp) = (is_there("tokenFile"), is_there("idp"));
    let is_enterprise = auth.kind == ServerAuthKind::Enterprise;
    conflict(
        is_enterprise && has_file && !has_idp,
        "`idp` is missing beside `tokenFile`",
        "add the identity provider",
    );
    let is_users = is_enterprise && has_idp && !has_file;
    let help = "remove it: each user signs in at the issuer of `auth.oauth` with `signIn`; or add `tokenFile`";
    conflict(is_users, "`idp` has no effect without `tokenFile`", help);
    let has_issuer = node
        .given_field("idp")
        .is_none_or(|idp| idp.field("issuer").is_some());
    conflict(
        !has_issuer,
        "`issuer` is missing in `idp`",
        "add the identifier of the identity provider",
    );
    let is_warned_of = has_secret && !is_named && !is_for_anybody;
    if let Some(secret) = entries
        .iter()
        .find(|entry| entry.key == "clientSecret" && is_warned_of)
    {
        let help = "write the `issuer` that the secret is for";
        reader.warn(
            secret.key_span,
            "this secret is shown to the authorization server that the server names",
            help,
        );
    }
}

/// A user name of HTTP's Basic scheme, which cannot have a colon (RFC 7617, 2).
const USERNAME: Parsed<String> = checked!(
    |text| !text.is_empty() && !text.contains(':') && !text.chars().any(char::is_control),
    "is not a user name",
    "write it without a colon and control characters"
);

const KEY_HEADER: Parsed<String> = checked!(
    |text| HeaderName::from_bytes(text.as_bytes())
        .is_ok_and(|name| name != HOST && !is_of_transport(name.as_str())),
    "cannot be used as such a header",
    "write the header in which the server wants its keys, such as `X-API-Key`"
);

const KEY_PREFIX: Parsed<String> = checked!(
    Visible::Nothing,
    |text| HeaderValue::from_str(text).is_ok().then(|| text.to_owned()),
    "this cannot be sent in a header",
    "remove control characters",
    |prefix| json!(if prefix.is_empty() { "" } else { HIDDEN })
);
