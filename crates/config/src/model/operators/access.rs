//! Who may use the admin listener.

use serde_json::json;
use url::{Host, Url};

use crate::definition::Visible;
use crate::option::kind::{Each, Nested, Parsed};
use crate::option::options;
use crate::option::reader::{Reader, Text};

options! {
    /// The roles of identities that `auth` shows. Who has neither role is refused.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AdminRoles: "roles", "in `roles` of `admin`";
    options {
        /// Who may do everything: call tools, switch and restart servers, reload, end sessions.
        "operator" => operator: RoleRule = RoleRule::default(), Nested::<RoleRule>::KIND;
        /// Who may look at everything, and change nothing.
        "viewer" => viewer: RoleRule = RoleRule::default(), Nested::<RoleRule>::KIND;
    }
}

options! {
    /// Who has a role: one of these groups or scopes is enough. A key or certificate without scopes has none here.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RoleRule: "operator", "in `operator` or `viewer` of `roles`";
    options {
        /// Groups of which a member has the role.
        "groups" => groups: Vec<String> = Vec::new(), Each(GROUP), example "# [platform]";
        /// OAuth scopes with which an identity has the role.
        "scopes" => scopes: Vec<String> = Vec::new(), Each(SCOPE), example "# [fanlight:admin]";
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
        [&self.operator, &self.viewer].iter().all(|rule| rule.groups.is_empty() && rule.scopes.is_empty())
    }
}

const GROUP: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_name = !text.value.is_empty() && !text.value.chars().any(char::is_control);
        let help = "write the name of a group as the issuer or the file of keys has it";
        or_error(is_name.then(|| text.value.clone()), reader, &text, "is not the name of a group", help)
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
        or_error(is_scope.then(|| text.value.clone()), reader, &text, "is not a scope", help)
    },
    show: |scope| json!(scope),
};

/// The origin at which operators open the page.
pub(crate) const PUBLIC_URL: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let url = protected_url(&text.value).filter(|url| url.query().is_none() && url.path() == "/");
        let help = "write scheme, host and port alone, such as `https://fanlight.example.com`; only this machine may be named \
                    with http";
        let origin = url.map(|url| url.origin().ascii_serialization());
        or_error(origin, reader, &text, "is not a URL under which operators can be served", help)
    },
    show: |url| json!(url),
};

/// A URL that is requested over TLS or within this machine: codes and cookies travel there.
fn protected_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_local = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.to_canonical().is_loopback(),
    };
    let is_protected = url.scheme() == "https" || (url.scheme() == "http" && is_local);
    let is_plain = url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    (is_protected && is_plain).then_some(url)
}

fn or_error<T>(value: Option<T>, reader: &mut Reader<'_>, text: &Text, message: &str, help: &str) -> Option<T> {
    if value.is_none() {
        reader.error(text.span, format!("{} {message}", text.shown()), help);
    }
    value
}
