//! The authentication of clients over HTTP, from the configuration and the files that it names. It
//! is set up at the start and after each change of them.

mod oauth;

use std::sync::Arc;

use fanlight_auth::{
    Authenticator, Grant, KeySettings, NewKey, ProxySettings, Settings, UnknownKeys, UsedOnce,
    key_digest,
};
use fanlight_config::{Auth, Config, Key, Proxy};
use http::HeaderName;

use fanlight_cli::configuration;
use fanlight_cli::failure::{Failure, Unusable};
use fanlight_replicas::Replicas;

/// The initial authenticator, and the receiver of its requests with unknown keys. They wait until
/// the file with keys has been looked at again.
pub(crate) fn authenticator(
    config: &Config,
    replicas: Option<&Replicas>,
) -> Result<(Arc<Authenticator>, UnknownKeys), Failure> {
    let settings = settings(config).map_err(|unusable| configuration::failure(&unusable))?;
    let used = replicas.map(|replicas| Arc::new(replicas.clone()) as Arc<dyn UsedOnce>);
    let (authenticator, unknown) = Authenticator::sharing(settings.as_ref(), used).asking();
    Ok((Arc::new(authenticator), unknown))
}

/// A new key, and an authenticator that accepts only this key. It protects a gateway that serves
/// one command from others on this machine.
pub(crate) fn for_one_client() -> Result<(String, Arc<Authenticator>), Failure> {
    let key = NewKey::make().ok_or_else(|| Failure::other("the system has no random numbers"))?;
    let own = KeySettings {
        name: "fanlight".to_owned(),
        digest: key_digest(key.text()),
        expires: None,
        grant: Grant::default(),
        endpoints: None,
    };
    let settings = Settings {
        keys: Some(vec![own]),
        ..Settings::default()
    };
    Ok((
        key.text().to_owned(),
        Arc::new(Authenticator::new(Some(&settings))),
    ))
}

/// The authentication methods of `config`; `None` if clients are not authenticated.
pub(crate) fn settings(config: &Config) -> Result<Option<Settings>, Unusable> {
    config
        .auth
        .methods()
        .map(|auth| methods(config, auth))
        .transpose()
}

fn methods(config: &Config, auth: &Auth) -> Result<Settings, Unusable> {
    Ok(Settings {
        oauth: oauth::settings(config, &auth.oauth)?,
        keys: auth
            .keys
            .as_ref()
            .map(|file| file.keys.iter().map(key).collect()),
        certificates: auth.certificates,
        proxy: auth.proxy.as_ref().map(proxy).transpose()?,
        socket: auth.socket,
    })
}

fn key(key: &Key) -> KeySettings {
    KeySettings {
        name: key.name.clone(),
        digest: key.sha256,
        expires: key.expires,
        grant: Grant {
            groups: key.groups.clone(),
            scopes: key.scopes.clone(),
        },
        endpoints: key.endpoints.clone(),
    }
}

fn proxy(proxy: &Proxy) -> Result<ProxySettings, Unusable> {
    let name = |name: &String| {
        let wrong = |_| {
            Unusable::Other(format!(
                "`auth.proxy` names {name:?}, which cannot be the name of a header"
            ))
        };
        HeaderName::try_from(name).map_err(wrong)
    };
    Ok(ProxySettings {
        header: name(&proxy.header)?,
        groups: proxy.groups.as_ref().map(name).transpose()?,
        from: proxy.from.clone(),
    })
}
