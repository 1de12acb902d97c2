//! The authentication of clients over HTTP, from the configuration and the files that it names. It
//! is set up at the start and after each change of them.

use std::sync::Arc;

use fanlight_auth::{
    Authenticator, IssuerSettings, NewKey, OAuthLimits, OAuthSettings, ProxySettings, Settings,
    UnknownKeys, UsedOnce, key_digest,
};
use fanlight_cli::failure::{Failure, Result, Unusable};
use fanlight_cli::server_auth::{authorities, certificates};
use fanlight_config::{Auth, Config, Issuer, Key, Proxy};
use fanlight_replicas::Replicas;
use http::HeaderName;

/// The initial authenticator, and the receiver of its requests with unknown keys. They wait until
/// the file with keys has been looked at again.
pub(crate) fn authenticator(
    config: &Config,
    replicas: Option<&Replicas>,
) -> Result<(Arc<Authenticator>, UnknownKeys)> {
    let settings = settings(config)?;
    let used = replicas.map(|replicas| Arc::new(replicas.clone()) as Arc<dyn UsedOnce>);
    let (authenticator, unknown) = Authenticator::sharing(settings.as_ref(), used).asking();
    Ok((Arc::new(authenticator), unknown))
}

/// A new key, and an authenticator that accepts only this key. It protects a gateway that serves
/// one command from others on this machine.
pub(crate) fn for_one_client() -> Result<(String, Arc<Authenticator>)> {
    let key = NewKey::make().ok_or_else(|| Failure::other("the system has no random numbers"))?;
    let own = Key {
        name: "fanlight".to_owned(),
        sha256: key_digest(key.text()),
        groups: Vec::new(),
        scopes: None,
        expires: None,
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
        oauth: oauth(config, &auth.oauth)?,
        keys: auth.keys.as_ref().map(|file| file.keys.clone()),
        certificates: auth.certificates,
        proxy: auth.proxy.as_ref().map(proxy).transpose()?,
        socket: auth.socket,
    })
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

/// The settings for access tokens of these issuers; `None` if there are no issuers.
fn oauth(config: &Config, issuers: &[Issuer]) -> Result<Option<OAuthSettings>, Unusable> {
    if issuers.is_empty() {
        return Ok(None);
    }
    if let Some(issuer) = issuers
        .iter()
        .find(|issuer| issuer.audience.is_empty() && config.public_url.is_none())
    {
        return Err(Unusable::Other(format!(
            "no audience is set for tokens of {}: set `publicUrl` to the URL under which clients \
             reach Fanlight, or `audience` of the issuer",
            issuer.issuer
        )));
    }
    Ok(Some(OAuthSettings {
        issuers: issuers.iter().map(issuer).collect::<Result<_, _>>()?,
        public_url: config.public_url.clone(),
        limits: OAuthLimits::default(),
    }))
}

fn issuer(issuer: &Issuer) -> Result<IssuerSettings, Unusable> {
    let unusable = |error| Unusable::Other(format!("the issuer {}: {error}", issuer.issuer));
    certificates(issuer.ca_file.as_deref()).map_err(unusable)?;
    Ok(IssuerSettings {
        authorities: authorities(issuer.ca_file.as_deref()).map_err(unusable)?,
        issuer: issuer.issuer.clone(),
        jwks_uri: issuer.jwks_uri.clone(),
        audience: issuer.audience.clone(),
        claims: issuer.claims.clone(),
        require: issuer.require.clone(),
        introspection: issuer.introspection.clone(),
    })
}
