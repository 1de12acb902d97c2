//! Access to the admin listener: roles, and the URL of its page.

use serde_json::json;
use url::Url;

use crate::definition::Visible;
use crate::model::auth::values::is_safe;
use crate::model::policy::{AllowedClients, MEMBERS};
use crate::option::kind::{Parsed, checked};
use crate::option::options;

options! {
    /// The roles of identities of `auth`: `group:NAME`, or `user:ISSUER#SUBJECT` (`user:key#ci` is
    /// the key `ci`). An identity has the highest role that lists it. Identities without a role are
    /// refused.
    pub struct AdminRoles: "roles", "in `roles` of `admin`";
    options {
        /// Identities that may do everything: call tools, switch and restart servers, reload, end
        /// sessions.
        "operator" => operator: Vec<AllowedClients> = Vec::new(), MEMBERS, example "# [\"group:platform\", \"user:key#ci\"]";
        /// Identities that may see everything, and approve or refuse calls that wait for approval.
        "approver" => approver: Vec<AllowedClients> = Vec::new(), MEMBERS, example "# [\"group:seniors\"]";
        /// Identities that may see everything and change nothing.
        "viewer" => viewer: Vec<AllowedClients> = Vec::new(), MEMBERS, example "# [\"group:staff\"]";
    }
}

impl Default for AdminRoles {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}

impl AdminRoles {
    /// Whether no identity has a role.
    pub fn is_empty(&self) -> bool {
        self.members().next().is_none()
    }

    /// The members of all roles, each with the name of its role.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, &AllowedClients)> {
        [
            ("operator", &self.operator),
            ("approver", &self.approver),
            ("viewer", &self.viewer),
        ]
        .into_iter()
        .flat_map(|(role, members)| members.iter().map(move |member| (role, member)))
    }
}

/// The origin at which operators open the page.
pub(crate) const PUBLIC_URL: Parsed<String> = checked!(
    Visible::All,
    |text| protected_url(text)
        .filter(|url| url.query().is_none() && url.path() == "/")
        .map(|url| url.origin().ascii_serialization()),
    "is not a URL under which operators can be served",
    "write scheme, host and port alone, such as `https://fanlight.example.com`; only this machine may be named \
     with http",
    |url| json!(url)
);

/// A URL to which codes and cookies may travel.
fn protected_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (is_safe(&url) && url.fragment().is_none()).then_some(url)
}
