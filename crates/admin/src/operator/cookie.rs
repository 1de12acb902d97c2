//! Reads and sets cookies.
//!
//! A browser sends cookies to every port of a host. So the names of cookies contain the port of the
//! listener: otherwise two listeners on one machine would sign out each other's operators.
//!
//! Over https the names have the prefix `__Host-`. Browsers then refuse a cookie with this name
//! that another host or an unencrypted page sets. Cookies for one path have `__Secure-` instead.

use std::time::Duration;

use fanlight_credentials::cookies;
use http::HeaderMap;

/// The purpose of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The session of an operator.
    Session,
    /// A sign-in at an issuer that began in this browser.
    SignIn,
}

/// The cookies of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cookies {
    /// Whether browsers reach the listener over https.
    pub(crate) is_secure: bool,
    /// The path of the listener's public URL, without a slash at the end.
    pub(crate) path: String,
    /// The port in the names of the cookies.
    pub(crate) port: u16,
}

/// The session cookie of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown<'a> {
    /// The request has no cookie with this name.
    Nothing,
    /// The value of the cookie.
    Value(&'a str),
    /// The request has several cookies with this name. Another page of this host may have set one
    /// of them.
    Several,
}

impl Cookies {
    /// The name of a cookie.
    pub(crate) fn name(&self, purpose: Purpose) -> String {
        let name = match purpose {
            Purpose::Session => "fanlight",
            Purpose::SignIn => "fanlight-sign-in",
        };
        match self.is_secure {
            true if self.path.is_empty() => format!("__Host-{name}"),
            true => format!("__Secure-{name}"),
            false => format!("{name}-{}", self.port),
        }
    }

    /// The cookie in a request.
    pub(crate) fn read<'a>(&self, purpose: Purpose, headers: &'a HeaderMap) -> Shown<'a> {
        let name = self.name(purpose);
        let mut values = cookies(headers, &name);
        match (values.next(), values.next()) {
            (None, _) => Shown::Nothing,
            (Some(value), None) => Shown::Value(value),
            (Some(_), Some(_)) => Shown::Several,
        }
    }

    /// The value of `Set-Cookie` that sets a cookie. The cookie lasts for `age`, or until the
    /// browser ends.
    pub(crate) fn set(&self, purpose: Purpose, value: &str, age: Option<Duration>) -> String {
        let age = age
            .map(|age| format!("; Max-Age={}", age.as_secs()))
            .unwrap_or_default();
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!(
            "{}={value}; Path={}; HttpOnly; SameSite=Strict{secure}{age}",
            self.name(purpose),
            if self.path.is_empty() {
                "/"
            } else {
                &self.path
            }
        )
    }

    /// The value of `Set-Cookie` that removes a cookie.
    pub(crate) fn remove(&self, purpose: Purpose) -> String {
        self.set(purpose, "", Some(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::COOKIE;

    use super::*;

    const PLAIN: Cookies = Cookies {
        is_secure: false,
        path: String::new(),
        port: 8081,
    };
    const SECURE: Cookies = Cookies {
        is_secure: true,
        path: String::new(),
        port: 8081,
    };

    #[test]
    fn cookie_is_for_this_host_and_its_own_pages_alone() {
        let set = PLAIN.set(Purpose::Session, "abc", None);
        assert_eq!(set, "fanlight-8081=abc; Path=/; HttpOnly; SameSite=Strict");
        let set = SECURE.set(Purpose::SignIn, "abc", Some(Duration::from_secs(600)));
        assert_eq!(
            set,
            "__Host-fanlight-sign-in=abc; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=600"
        );
        let below = Cookies {
            path: "/gate".to_owned(),
            ..SECURE
        };
        assert_eq!(
            below.set(Purpose::Session, "abc", None),
            "__Secure-fanlight=abc; Path=/gate; HttpOnly; SameSite=Strict; Secure"
        );
        assert!(
            SECURE
                .remove(Purpose::Session)
                .ends_with("; Secure; Max-Age=0")
        );
    }

    #[test]
    fn cookie_is_read_by_its_exact_name_and_once() {
        let read = |cookies: &Cookies, values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            values
                .iter()
                .for_each(|value| _ = headers.append(COOKIE, HeaderValue::from_static(value)));
            match cookies.read(Purpose::Session, &headers) {
                Shown::Value(value) => value.to_owned(),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(
            read(&PLAIN, &["a=b; fanlight-8081=x; fanlight-8082=y"]),
            "x"
        );
        assert_eq!(
            read(&PLAIN, &["fanlight-8082=y; Fanlight-8081=z; fanlight=x"]),
            "Nothing"
        );
        assert_eq!(
            read(&PLAIN, &["fanlight-8081=x; fanlight-8081=y"]),
            "Several"
        );
        assert_eq!(
            read(&PLAIN, &["fanlight-8081=x", "fanlight-8081=x"]),
            "Several"
        );
        // Without the prefix, a page without TLS may have set the cookie.
        assert_eq!(read(&SECURE, &["fanlight=x; fanlight-8081=x"]), "Nothing");
        assert_eq!(read(&SECURE, &["__Host-fanlight=x"]), "x");
    }
}
