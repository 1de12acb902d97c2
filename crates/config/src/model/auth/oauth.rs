//! Issuers of OAuth access tokens.

use crate::settings::Secret;
use url::Url;

use super::super::life::FOLDER;
use super::values::{CLAIM, CLIENT_SECRET, ISSUER, TEXT, URI};
use crate::option::{Maybe, NameMap, Nested, OneOrMany, Reader, options};
use crate::report::problem::quoted;
use crate::syntax::{Entry, Node, Value};

options! {
    /// An issuer of OAuth access tokens.
    pub struct Issuer: "issuer", "in an entry of `oauth`";
    options {
        /// Its identifier, which must exactly equal `iss` of its tokens; https, or http on this
        /// machine. Its keys are found by RFC 8414 or OpenID Connect Discovery.
        "issuer" => issuer: String = String::new(), ISSUER, example "https://id.example.com";
        /// The URL of its keys (RFC 7517): https, or http on this machine if the issuer also uses
        /// http. Default: from its metadata.
        "jwksUri" => jwks_uri: Option<String> = None, Maybe(URI), example "https://id.example.com/keys";
        /// The accepted values of `aud` in its tokens. Default: the URL of the requested endpoint,
        /// made from `publicUrl` (RFC 8707).
        "audience" => audience: Vec<String> = Vec::new(), OneOrMany(TEXT), example "[https://mcp.example.com/mcp]";
        /// The claims that identify a client and its rights.
        "claims" => claims: Claims = Claims::default(), Nested::<Claims>::KIND;
        /// Claims that its tokens must have. Each claim must be or contain one of the given values.
        "require" => require: Vec<(String, Vec<String>)> = Vec::new(), NameMap(OneOrMany(TEXT)), example "{azp: [agent-runner]}";
        /// Asks the issuer about each token (RFC 7662) instead of verifying a signature.
        "introspection" => introspection: Option<Introspection> = None, Maybe(Nested::<Introspection>::KIND);
        /// A file with certificates (PEM) of authorities that are trusted for it in addition to the
        /// system's; relative to the folder of this file.
        "caFile" => ca_file: Option<String> = None, Maybe(FOLDER), example "internal-ca.pem";
        /// Lets people sign in there by OpenID Connect, on the pages for users and for servers that
        /// get a token in exchange for the user's ([signing-in.md](signing-in.md)). `{}` suffices
        /// if clients need not be registered by hand.
        "signIn" => sign_in: Option<UserSignIn> = None, Maybe(Nested::<UserSignIn>::KIND);
    }
}

options! {
    /// The claims with a client's identity and rights: each by its name, or as a JSON Pointer such
    /// as `/realm_access/roles`.
    pub struct Claims: "claims", "in `claims` of an issuer";
    options {
        /// The subject, which together with the issuer is the principal.
        "principal" => principal: String = "sub".to_owned(), CLAIM;
        /// The groups: a text or a list of texts.
        "groups" => groups: String = "groups".to_owned(), CLAIM;
        /// The scopes: a list separated by spaces, or a list of texts.
        "scopes" => scopes: String = "scope".to_owned(), CLAIM;
    }
}

options! {
    /// Introspection of tokens at an issuer (RFC 7662).
    pub struct Introspection: "introspection", "in `introspection` of an issuer";
    options {
        /// The introspection endpoint: https, or http on this machine if the issuer also uses http.
        /// Default: from the issuer's metadata.
        "endpoint" => endpoint: Option<String> = None, Maybe(URI), example "https://id.example.com/introspect";
        /// Fanlight's client identifier at the issuer.
        "clientId" => client_id: String = String::new(), TEXT, example "fanlight";
        /// Its secret.
        "clientSecret" => client_secret: Option<Secret> = None, Maybe(CLIENT_SECRET), example "${INTROSPECTION_SECRET}";
    }
}

options! {
    /// The sign-in of people at an issuer: the authorization code flow of OpenID Connect with PKCE.
    /// [signing-in.md](signing-in.md#redirect-uris) says which redirect URI to register.
    pub struct UserSignIn: "userSignIn", "in `signIn` of an issuer";
    options {
        /// Fanlight's client identifier at the issuer. Default: from its metadata document, or from
        /// dynamic registration.
        "clientId" => client_id: Option<String> = None, Maybe(TEXT), example "fanlight";
        /// Its secret.
        "clientSecret" => client_secret: Option<Secret> = None, Maybe(CLIENT_SECRET), example "${SIGN_IN_SECRET}";
    }
}

/// Reports incomplete and duplicate issuers.
pub(super) fn check(reader: &mut Reader<'_>, auth: &Entry, issuers: &[Issuer]) {
    let Some(Value::List(nodes)) = auth.value.field("oauth").map(|node| &node.value) else {
        return;
    };
    for node in nodes {
        if matches!(node.value, Value::Map(_)) && node.field("issuer").is_none() {
            let help = "write the issuer's identifier, such as `issuer: https://id.example.com`";
            reader.error(
                node.span,
                "`issuer` is missing in an entry of `oauth`",
                help,
            );
        }
        if let Some(introspection) = node.given_field("introspection") {
            for option in ["clientId", "clientSecret"] {
                if introspection.field(option).is_none() {
                    let help = "the issuer answers only to a client that it knows";
                    reader.error(
                        introspection.span,
                        format!("`{option}` is missing in `introspection`"),
                        help,
                    );
                }
            }
        }
    }
    for (issuer, node) in issuers.iter().zip(nodes) {
        if let Some(sign_in) = &issuer.sign_in
            && sign_in.client_secret.is_some()
            && sign_in.client_id.is_none()
        {
            let span = node
                .field("signIn")
                .map_or(node.span, |written| written.span);
            reader.error(
                span,
                "`clientId` is missing beside `clientSecret`",
                "add it",
            );
        }
        check_schemes(reader, issuer, node);
    }
    for (index, issuer) in issuers.iter().enumerate() {
        if !issuer.issuer.is_empty()
            && issuers
                .iter()
                .take(index)
                .any(|other| other.issuer == issuer.issuer)
        {
            let span = nodes.get(index).map_or(auth.key_span, |node| node.span);
            reader.error(
                span,
                format!("the issuer {} is there twice", quoted(&issuer.issuer)),
                "remove one of them",
            );
        }
    }
}

/// Reports unusable URLs of an issuer: http is only permitted on this machine, and only if the
/// issuer's identifier uses http. Otherwise any process of this machine could issue tokens.
fn check_schemes(reader: &mut Reader<'_>, issuer: &Issuer, node: &Node) {
    let is_http = |url: &String| Url::parse(url).is_ok_and(|url| url.scheme() == "http");
    if is_http(&issuer.issuer) {
        return;
    }
    let introspection = (node.field("introspection"), issuer.introspection.as_ref());
    let endpoint = introspection
        .1
        .and_then(|introspection| introspection.endpoint.as_ref());
    for (option, url, parent) in [
        ("jwksUri", issuer.jwks_uri.as_ref(), Some(node)),
        ("endpoint", endpoint, introspection.0),
    ] {
        let written = parent.and_then(|parent| parent.field(option));
        if let Some(written) = written.filter(|_| url.is_some_and(is_http)) {
            let message =
                format!("`{option}` is an http URL of an https issuer, and is never asked");
            let help = "write an https URL: http is for an issuer on this machine whose `issuer` is an http URL, too";
            reader.error(written.span, message, help);
        }
    }
}
