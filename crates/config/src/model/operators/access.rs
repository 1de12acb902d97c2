//! Access to the admin listener: roles, and sign-in with an OpenID Connect issuer.

use crate::settings::Secret;
use serde_json::json;
use url::{Host, Url};

use crate::definition::Visible;
use crate::option::kind::{Each, Maybe, Nested, Parsed};
use crate::option::options;
use crate::option::reader::{Reader, Text};
use crate::report::mask::HIDDEN;

options! {
    /// The roles of identities of `auth` or `admin.signIn`. Identities without a role are refused.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AdminRoles: "roles", "in `roles` of `admin`";
    options {
        /// Identities that may do everything: call tools, switch and restart servers, reload, end
        /// sessions.
        "operator" => operator: RoleRule = RoleRule::default(), Nested::<RoleRule>::KIND;
        /// Identities that may see everything, and approve or refuse calls that wait for approval.
        "approver" => approver: RoleRule = RoleRule::default(), Nested::<RoleRule>::KIND;
        /// Identities that may see everything and change nothing.
        "viewer" => viewer: RoleRule = RoleRule::default(), Nested::<RoleRule>::KIND;
    }
}

options! {
    /// Groups and scopes that give an identity a role; one of them suffices. A key or certificate
    /// without scopes has no scope here.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RoleRule: "operator", "in `operator` or `viewer` of `roles`";
    options {
        /// Groups whose members have the role.
        "groups" => groups: Vec<String> = Vec::new(), Each(GROUP), example "# [platform]";
        /// OAuth scopes with which an identity has the role.
        "scopes" => scopes: Vec<String> = Vec::new(), Each(SCOPE), example "# [fanlight:admin]";
    }
}

options! {
    /// An OpenID Connect issuer at which operators sign in (authorization code flow with PKCE). Its
    /// client has the redirect URI `/sign-in/callback` below `admin.publicUrl`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SignIn: "signIn", "in `signIn` of `admin`";
    options {
        /// The issuer's identifier: its URL as in its discovery document.
        "issuer" => issuer: Option<String> = None, Maybe(ISSUER), example "# https://id.example.com";
        /// The identifier of the client that is registered for Fanlight.
        "clientId" => client_id: Option<String> = None, Maybe(NAME), example "# fanlight-admin";
        /// The client's secret. Default: none, for a public client.
        "clientSecret" => client_secret: Option<Secret> = None, Maybe(CLIENT_SECRET), example "# ${FANLIGHT_CLIENT_SECRET}";
        /// The scopes that are requested. Default: `openid`, which is requested in any case.
        "scopes" => scopes: Vec<String> = Vec::new(), Each(SCOPE), example "# [openid, profile, groups]";
        /// The claim with a list of groups, or a text with one, for `admin.roles`. Default:
        /// `groups`.
        "groupsClaim" => groups_claim: Option<String> = None, Maybe(NAME), example "# groups";
        /// The claim with scopes, as a text or a list, for `admin.roles`. Default: scopes are not
        /// read.
        "scopesClaim" => scopes_claim: Option<String> = None, Maybe(NAME), example "# scope";
    }
}

impl Default for AdminRoles {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}

impl Default for RoleRule {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}

impl AdminRoles {
    /// Whether no identity has a role.
    pub fn is_empty(&self) -> bool {
        [&self.operator, &self.viewer]
            .iter()
            .all(|rule| rule.groups.is_empty() && rule.scopes.is_empty())
    }
}

const GROUP: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_name = !text.value.is_empty() && !text.value.chars().any(char::is_control);
        let help = "write the name of a group as the issuer or the file of keys has it";
        or_error(
            is_name.then(|| text.value.clone()),
            reader,
            &text,
            "is not the name of a group",
            help,
        )
    },
    show: |group| json!(group),
};

/// A scope token (RFC 6749, 3.3).
const SCOPE: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let is_scope = !text.value.is_empty() && text.value.bytes().all(fits);
        let help = "write one scope as one entry, such as `fanlight:admin`";
        or_error(
            is_scope.then(|| text.value.clone()),
            reader,
            &text,
            "is not a scope",
            help,
        )
    },
    show: |scope| json!(scope),
};

const NAME: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_name = !text.value.is_empty() && !text.value.chars().any(char::is_control);
        or_error(
            is_name.then(|| text.value.clone()),
            reader,
            &text,
            "is empty, or has a control character",
            "write a name",
        )
    },
    show: |name| json!(name),
};

const CLIENT_SECRET: Parsed<Secret> = Parsed {
    visible: Visible::Nothing,
    parse: |reader, text| {
        if !text.value.is_empty() && !text.value.chars().any(char::is_control) {
            return Some(Secret::new(text.value));
        }
        reader.error(
            text.span,
            "this is not the secret of a client",
            "write it as the issuer shows it, without line breaks",
        );
        None
    },
    show: |_| json!(HIDDEN),
};

/// The issuer's identifier, kept as written, since it is compared with the issuer's answer byte by
/// byte.
const ISSUER: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_plain = text.value.bytes().all(|byte| byte.is_ascii_graphic());
        let url = protected_url(&text.value).filter(|url| is_plain && url.query().is_none());
        let help = "write its URL without a query, such as `https://id.example.com`; only an issuer on this machine may have \
                    http";
        or_error(
            url.map(|_| text.value.clone()),
            reader,
            &text,
            "is not the URL of an issuer",
            help,
        )
    },
    show: |issuer| json!(issuer),
};

/// The origin at which operators open the page.
pub(crate) const PUBLIC_URL: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let url =
            protected_url(&text.value).filter(|url| url.query().is_none() && url.path() == "/");
        let help = "write scheme, host and port alone, such as `https://fanlight.example.com`; only this machine may be named \
                    with http";
        let origin = url.map(|url| url.origin().ascii_serialization());
        or_error(
            origin,
            reader,
            &text,
            "is not a URL under which operators can be served",
            help,
        )
    },
    show: |url| json!(url),
};

/// A URL that is only requested over TLS or within this machine, since codes and cookies travel
/// there.
fn protected_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_local = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.to_canonical().is_loopback(),
    };
    let is_protected = url.scheme() == "https" || (url.scheme() == "http" && is_local);
    let is_plain =
        url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    (is_protected && is_plain).then_some(url)
}

fn or_error<T>(
    value: Option<T>,
    reader: &mut Reader<'_>,
    text: &Text,
    message: &str,
    help: &str,
) -> Option<T> {
    if value.is_none() {
        reader.error(text.span, format!("{} {message}", text.shown()), help);
    }
    value
}
