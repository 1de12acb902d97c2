//! The address of Valkey, which keeps the state that several processes share.

use std::fmt;

use url::Url;

use crate::settings::Secret;

/// The default port of Valkey.
const PORT: u16 = 6379;
/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// The servers of a Valkey and the connection to them. `Debug` shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct ValkeyUrl {
    /// The relation between the servers.
    pub kind: ValkeyKind,
    /// Whether connections use TLS.
    pub is_tls: bool,
    /// The host and port of each server; at least one.
    pub hosts: Vec<(String, u16)>,
    /// The user in Valkey's access list.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
}

/// The relation between a Valkey's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValkeyKind {
    /// A single server.
    Single,
    /// A cluster: the list has some of its servers.
    Cluster,
    /// Sentinels, which know the primary of this name.
    Sentinel(String),
}

/// The error of a text that is no [`ValkeyUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not the URL of a Valkey")]
pub struct NotAValkeyUrl;

impl ValkeyUrl {
    /// The servers in `text`: `valkey://[user:password@]host[:port][/database]`, with `valkeys` for
    /// TLS and `+cluster` or `+sentinel` after the scheme. Clusters and sentinels have several
    /// hosts, separated by commas; sentinels also have `/name` of the primary. `redis` and `rediss`
    /// mean the same as `valkey` and `valkeys`.
    ///
    /// # Errors
    ///
    /// The text is none of these.
    pub fn parse(text: &str) -> Result<Self, NotAValkeyUrl> {
        Self::parsed(text).ok_or(NotAValkeyUrl)
    }

    fn parsed(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (base, kind) = scheme
            .split_once('+')
            .map_or((scheme, ""), |(base, kind)| (base, kind));
        let is_tls = match base {
            "valkey" | "redis" => false,
            "valkeys" | "rediss" => true,
            _ => return None,
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(credentials, hosts)| {
                (Some(credentials), hosts)
            });
        let database = || {
            if path.is_empty() {
                Some(0)
            } else {
                path.parse().ok()
            }
        };
        let (kind, database, port) = match kind {
            "" => (ValkeyKind::Single, database()?, PORT),
            "cluster" if path.is_empty() => (ValkeyKind::Cluster, 0, PORT),
            "sentinel" if is_name(path) => {
                (ValkeyKind::Sentinel(path.to_owned()), 0, SENTINEL_PORT)
            }
            _ => return None,
        };
        let hosts: Vec<_> = hosts
            .split(',')
            .map(|host| host_of(host, port))
            .collect::<Option<_>>()?;
        if kind == ValkeyKind::Single && hosts.len() > 1 {
            return None;
        }
        let (user, password) = credentials.map_or(Some((None, None)), credentials_of)?;
        Some(Self {
            kind,
            is_tls,
            hosts,
            user,
            password,
            database,
        })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn host_of(text: &str, default_port: u16) -> Option<(String, u16)> {
    let url = Url::parse(&format!("http://{text}")).ok()?;
    let is_bare = url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && !text.ends_with(['/', ':']);
    let host = url
        .host_str()?
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    // `http` leaves out the port 80.
    let port = url.port().unwrap_or(if text.ends_with(":80") {
        80
    } else {
        default_port
    });
    is_bare.then_some((host, port))
}

/// User and password, each percent-encoded.
fn credentials_of(text: &str) -> Option<(Option<String>, Option<Secret>)> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8()
            .ok()
            .map(|text| text.into_owned())
    };
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    Some((
        given(decoded(user)?),
        given(decoded(password)?).map(Secret::new),
    ))
}

impl fmt::Display for ValkeyUrl {
    /// Writes the URL without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, path) = match &self.kind {
            ValkeyKind::Single if self.database == 0 => ("", String::new()),
            ValkeyKind::Single => ("", format!("/{}", self.database)),
            ValkeyKind::Cluster => ("+cluster", String::new()),
            ValkeyKind::Sentinel(name) => ("+sentinel", format!("/{name}")),
        };
        let host = |(host, port): &(String, u16)| {
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        };
        let hosts: Vec<_> = self.hosts.iter().map(host).collect();
        write!(
            f,
            "{}{kind}://{}{path}",
            if self.is_tls { "valkeys" } else { "valkey" },
            hosts.join(",")
        )
    }
}

impl fmt::Debug for ValkeyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_one_server_a_cluster_or_sentinels() {
        for (text, shown) in [
            ("valkey://localhost", "valkey://localhost:6379"),
            ("redis://10.0.0.1:80/2", "valkey://10.0.0.1:80/2"),
            ("rediss://me:s3cret@[::1]:7000", "valkeys://[::1]:7000"),
            ("valkeys+cluster://a:1,b", "valkeys+cluster://a:1,b:6379"),
            (
                "redis+sentinel://:s3cret@a,b:7/main",
                "valkey+sentinel://a:26379,b:7/main",
            ),
        ] {
            let url = ValkeyUrl::parse(text).unwrap();
            assert_eq!(
                (url.to_string().as_str(), format!("{url:?}").as_str()),
                (shown, shown),
                "{text}"
            );
        }
    }

    #[test]
    fn user_and_password_are_decoded_and_hidden() {
        let url = ValkeyUrl::parse("rediss://me%40home:s3cret%2F@h").unwrap();
        assert_eq!(
            (
                url.user.as_deref(),
                url.password.as_ref().map(Secret::expose)
            ),
            (Some("me@home"), Some("s3cret/"))
        );
        let without_user = ValkeyUrl::parse("redis://:s3cret@h").unwrap();
        assert!(without_user.user.is_none() && without_user.password.is_some());
    }

    #[test]
    fn other_texts_are_refused() {
        for wrong in [
            "localhost:6379",
            "http://localhost",
            "valkey://",
            "valkey://a,b",
            "valkey://a/x",
            "valkey://a:",
            "valkey://a/0/1",
            "valkey://a?x=1",
            "valkey+cluster://a/1",
            "valkey+sentinel://a",
            "valkey+sentinel://a/b/c",
            "valkey+other://a",
        ] {
            assert_eq!(ValkeyUrl::parse(wrong), Err(NotAValkeyUrl), "{wrong}");
        }
    }
}
