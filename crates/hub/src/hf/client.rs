//! Requests to the hub: redirects followed by hand, the token kept to its host.

use std::time::Duration;

use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body, Proxy};

use super::HfOptions;
use crate::error::HubError;
use crate::options::Failure;

const REDIRECTS: usize = 5;

/// A connection pool with the endpoint and its token.
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// An answer that is no redirect.
pub(super) struct Answer {
    pub(super) response: Response<Body>,
    /// Where it came from, without the query, which may hold a signature.
    pub(super) url: String,
}

impl Answer {
    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.response, name)
    }
}

impl Client {
    pub(super) fn new(options: &HfOptions) -> Result<Self, HubError> {
        let endpoint = options.endpoint.trim_end_matches('/').to_owned();
        let bad = |why: &str| HubError::BadAnswer { url: endpoint.clone(), why: why.to_owned() };
        if origin(&endpoint).is_none() {
            return Err(bad("the endpoint must be http://HOST or https://HOST"));
        }
        let proxy = match &options.proxy {
            Some(address) => Some(Proxy::new(address).map_err(|_| bad("the proxy's address is malformed"))?),
            None => None,
        };
        let agent = Agent::config_builder()
            .proxy(proxy)
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("turbospark/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(options.timeout.min(Duration::from_secs(30))))
            .timeout_recv_response(Some(options.timeout))
            .timeout_per_read(Some(options.timeout))
            .build()
            .into();
        Ok(Self { agent, endpoint, token: options.token.clone() })
    }

    /// An address on the endpoint; the path's segments are escaped.
    pub(super) fn address(&self, path: &str) -> String {
        let mut address = self.endpoint.clone();
        for byte in path.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    address.push(char::from(byte));
                }
                _ => address.push_str(&format!("%{byte:02X}")),
            }
        }
        address
    }

    /// GET, redirects followed.
    pub(super) fn get(&self, url: &str, headers: &[(&str, &str)]) -> Result<Answer, Failure> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let response = self.once("GET", &url, headers)?;
            if !response.status().is_redirection() {
                return Ok(Answer { response, url: without_query(&url) });
            }
            url = self.redirected(&url, &response)?;
        }
        Err(Failure::Final(bad_answer(&url, "it redirects more than five times")))
    }

    /// HEAD of the first answer that is final or leads to another host: there the hub says what
    /// file it is about to serve.
    pub(super) fn head(&self, url: &str) -> Result<Answer, Failure> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let response = self.once("HEAD", &url, &[])?;
            let next = match response.status().is_redirection() {
                true => Some(self.redirected(&url, &response)?),
                false => None,
            };
            match next {
                Some(next) if origin(&next) == origin(&url) => url = next,
                _ => return Ok(Answer { response, url: without_query(&url) }),
            }
        }
        Err(Failure::Final(bad_answer(&url, "it redirects more than five times")))
    }

    fn once(&self, method: &str, url: &str, headers: &[(&str, &str)]) -> Result<Response<Body>, Failure> {
        let mut request = match method {
            "HEAD" => self.agent.head(url),
            _ => self.agent.get(url),
        };
        // Lengths and ranges must be those of the file itself.
        request = request.header("Accept-Encoding", "identity");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token
            && origin(url) == origin(&self.endpoint)
        {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| failed(url, error))
    }

    fn redirected(&self, url: &str, response: &Response<Body>) -> Result<String, HubError> {
        let location =
            header(response, "location").ok_or_else(|| bad_answer(url, "it redirects without saying where"))?;
        let (scheme, _) = url.split_once("://").unwrap_or(("https", ""));
        let next = if location.starts_with("//") {
            format!("{scheme}:{location}")
        } else if location.starts_with('/') {
            format!("{}{location}", origin(url).unwrap_or_default())
        } else {
            location.to_owned()
        };
        match origin(&next) {
            None => Err(bad_answer(url, "it redirects to something that is no web address")),
            Some(next) if scheme == "https" && !next.starts_with("https://") => {
                Err(bad_answer(url, "it redirects from https to an unprotected address"))
            }
            Some(_) => Ok(next),
        }
    }
}

/// Scheme and authority in lower case.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next()?;
    let known = scheme == "http" || scheme == "https";
    (known && !authority.is_empty() && !authority.contains('@'))
        .then(|| format!("{scheme}://{}", authority.to_ascii_lowercase()))
}

fn without_query(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or(url).to_owned()
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// An answer that cannot be used.
pub(super) fn bad_answer(url: &str, why: &str) -> HubError {
    HubError::BadAnswer { url: without_query(url), why: why.to_owned() }
}

/// Sorts a failed request into what may pass and what does not.
pub(super) fn failed(url: &str, error: ureq::Error) -> Failure {
    use ureq::Error as E;
    let passing = matches!(
        error,
        E::Io(_)
            | E::Timeout(_)
            | E::HostNotFound
            | E::ConnectionFailed
            | E::ConnectProxyFailed(_)
            | E::Protocol(_)
            | E::BodyStalled
    );
    let error = HubError::Http { url: without_query(url), source: Box::new(error) };
    if passing { Failure::Passing(error) } else { Failure::Final(error) }
}

/// The failure a status stands for, with what to do about it.
pub(super) fn status_failure(url: &str, status: StatusCode) -> Failure {
    let hint = match status.as_u16() {
        401 | 403 => "the repository is private, gated or misspelt; accept its terms on its page and pass a token",
        404 => "there is no such repository, revision or file",
        429 => "the hub limits the rate; wait, or pass a token",
        500.. => "the hub is in trouble; try again later",
        _ => "this answer was not expected",
    };
    let error = HubError::HttpStatus { url: without_query(url), status: status.as_u16(), hint: hint.to_owned() };
    match status.as_u16() {
        408 | 429 | 500.. => Failure::Passing(error),
        _ => Failure::Final(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_whole() {
        assert_eq!(origin("HTTPS://Host:1/a?b").as_deref(), Some("https://host:1"));
        for url in ["ftp://host/", "host/a", "https://", "https://user:secret@host/"] {
            assert_eq!(origin(url), None, "{url}");
        }
        assert_ne!(origin("http://host/"), origin("https://host/"));
        assert_ne!(origin("https://host/"), origin("https://host.example/"));
    }
}
