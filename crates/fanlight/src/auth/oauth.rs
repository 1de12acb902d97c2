//! The settings for access tokens, from the configuration.

use fanlight_auth::{
    ClaimPaths, IntrospectionSettings, IssuerSettings, OAuthLimits, OAuthSettings,
};
use fanlight_config::settings::Secret;
use fanlight_config::{Config, Introspection, Issuer};

use fanlight_cli::failure::Unusable;
use fanlight_cli::server_auth::{authorities, certificates};

/// The settings for access tokens of these issuers; `None` if there are no issuers.
pub(super) fn settings(
    config: &Config,
    issuers: &[Issuer],
) -> Result<Option<OAuthSettings>, Unusable> {
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
    let claims = &issuer.claims;
    let unusable = |error| Unusable::Other(format!("the issuer {}: {error}", issuer.issuer));
    certificates(issuer.ca_file.as_deref()).map_err(unusable)?;
    Ok(IssuerSettings {
        authorities: authorities(issuer.ca_file.as_deref()).map_err(unusable)?,
        issuer: issuer.issuer.clone(),
        jwks_uri: issuer.jwks_uri.clone(),
        audience: issuer.audience.clone(),
        claims: ClaimPaths {
            principal: claims.principal.clone(),
            groups: claims.groups.clone(),
            scopes: claims.scopes.clone(),
        },
        require: issuer.require.clone(),
        introspection: issuer.introspection.as_ref().map(introspection),
    })
}

fn introspection(introspection: &Introspection) -> IntrospectionSettings {
    IntrospectionSettings {
        endpoint: introspection.endpoint.clone(),
        client_id: introspection.client_id.clone(),
        client_secret: introspection
            .client_secret
            .clone()
            .unwrap_or_else(|| Secret::new("")),
    }
}
