//! Options for operators: the admin listener and telemetry.

use serde_json::json;
use url::Url;

use super::auth::values::is_safe;
use super::listener::{ADDRESS, Tls};
use super::policy::{AllowedClients, MEMBERS};
use super::values::{TOKEN, loopback, url_without_secrets};
use crate::definition::Visible;
use crate::option::{Choice, Maybe, Nested, OrOff, Parsed, checked, choice, options};
use crate::settings::{ListenAddress, Secret};

options! {
    /// The admin listener, which serves `/healthz`, `/readyz`, `/metrics`, `/api` and `/ui`.
    pub struct Admin: "admin", "in `admin`";
    options {
        /// Address and port, or a Unix socket; null or `off` disables the admin listener. `fanlight
        /// stdio` has one only if this or `--admin` is set.
        "listen" => listen: Option<ListenAddress> = Some(loopback(8081).into()), OrOff(ADDRESS);
        /// TLS of this listener. Default: none.
        "tls" => tls: Option<Tls> = None, Maybe(Nested::<Tls>::KIND), example "# {cert: server.pem, key: server.key}";
        /// Secret with which operators sign in to the page, and which programs send as
        /// `Authorization: Bearer <token>`: at least 16 characters. It is for a machine without
        /// `auth`: it has the role `operator`, and does not tell people apart. `/healthz` and
        /// `/readyz` need no token. If `listen` is not a loopback address, this or `roles` is
        /// required. Default: none. `openssl rand -hex 32` makes one.
        "token" => token: Option<Secret> = None, Maybe(TOKEN), example "# ${FANLIGHT_ADMIN_TOKEN}";
        /// The URL of the page for operators, if it is not `http://` and `listen`, for example a
        /// TLS proxy's URL. Cookies are made from it, and so are the redirect URIs of sign-ins
        /// (docs/signing-in.md), never from a request. Its host is accepted, too. People can sign
        /// in at the issuers of `auth` with `signIn` if this and `roles` are set.
        "publicUrl" => public_url: Option<String> = None, Maybe(PUBLIC_URL), example "# https://fanlight.example.com";
        /// The roles of identities of `auth`. Identities without a role are refused.
        "roles" => roles: AdminRoles = AdminRoles::default(), Nested::<AdminRoles>::KIND;
    }
    fields {
        /// Whether the file leaves the address open. `fanlight stdio` then has no admin listener.
        is_default: bool = true;
    }
}

impl Admin {
    /// Whether the listener may use an address: without authentication, only one that this machine
    /// alone can reach.
    pub fn may_listen(&self, address: &ListenAddress) -> bool {
        !self.is_open() || address.is_local()
    }

    /// Whether there is no authentication.
    pub fn is_open(&self) -> bool {
        self.token.is_none() && self.roles.is_empty()
    }
}

options! {
    /// Recorded data about requests, and its destination.
    pub struct Telemetry: "telemetry", "in `telemetry`";
    options {
        /// Base URL of an OTLP collector; overrides the `OTEL_*` variables. Default: as set by
        /// those variables.
        "endpoint" => endpoint: Option<String> = None, Maybe(COLLECTOR), example "# http://127.0.0.1:4318";
        /// Whether to trust the trace context of clients: `true` continues their traces, `link`
        /// begins new ones that link to them, `ignore` begins new ones. Their `tracestate` and
        /// `baggage` go to servers with `true` only.
        "trustInbound" => trust_inbound: TrustChoice = TrustChoice::True, TRUST;
        /// The calls whose arguments, results, progress, questions and answers traces keep, up to
        /// 64 KiB of each: `on`, `errors` for those that fail, `off`. `auto` is `on` if this gateway
        /// is one person's own, else `off`. With `auto` the content stays in memory; otherwise it is
        /// exported, too.
        "content" [live] => content: ContentChoice = ContentChoice::Auto, AUTO_CONTENT;
    }
}

choice! {
    /// Whether to trust the trace context of clients.
    TrustChoice, TRUST {
        /// The client's context is the parent.
        True = "true",
        /// Fanlight begins its own trace, with a link to the client's context.
        Link = "link",
        /// Fanlight begins its own trace.
        Ignore = "ignore",
    }
}

choice! {
    /// The calls whose content traces keep.
    ContentChoice, AUTO_CONTENT {
        /// All calls of a gateway that is one person's own.
        Auto = "auto",
        /// No calls.
        Off = "off",
        /// Failed calls.
        Errors = "errors",
        /// All calls.
        On = "on",
    }
}

/// The choices of a server or an endpoint: all but the first, `auto`.
pub(super) const CONTENT: Choice<ContentChoice> = Choice(AUTO_CONTENT.0.split_at(1).1);

const COLLECTOR: Parsed<String> = checked!(
    Visible::Authority,
    |text| Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .then(|| text.to_owned()),
    "the endpoint of the collector is not an http or https URL",
    "write its base URL, such as `http://127.0.0.1:4318`",
    |url| json!(url_without_secrets(url))
);

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
