//! How a new server proves that it may join a cluster, and how the cluster proves itself to it.
//!
//! The two do not know each other's keys yet. Both know the secret of the join token. Each proves it by a message
//! authentication code over a value that only the two ends of this TLS connection know (RFC 5705, "exporter"), and over
//! its own key. So a server in between, which has one connection to each, can neither pass a proof on nor learn the
//! secret. A new server believes nothing before the proof of the other side.
//!
//! ```text
//!  new server                                       server of the cluster
//!      │── request: node, peer, proof("client") ────────────>│ checks the proof
//!      │<── answer: proof("server"), what happened ──────────│
//! ```
//!
//! A request is repeated until the answer says that the node votes: the first one makes it a learner, and a later one a
//! voter, once it has the entries.

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::frame::{self, Frame};
use super::{BoxStream, message};
use crate::types::{NodeId, Peer};

/// Version of the handshake.
const VERSION: u16 = 1;
/// Kind of the frames of a handshake.
const JOIN: u8 = 20;
/// Maximum length of a request, whose sender is not known yet, and of an answer, which names all members.
const REQUEST_BYTES_MAX: usize = 4 * 1024;
const ANSWER_BYTES_MAX: usize = 256 * 1024;
const PREFIX: &str = "bjt1";

/// What a new server needs to join a cluster. With it, anyone can add servers.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// The cluster.
    pub cluster: u128,
    /// Secret of the cluster.
    pub secret: [u8; 32],
}

/// The secret is not printed.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({:032x}, …)", self.cluster)
    }
}

impl JoinToken {
    /// Returns the token as text, for a file that only its owner can read.
    pub fn reveal(&self) -> String {
        let [cluster, secret] =
            [&self.cluster.to_be_bytes()[..], &self.secret[..]].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        format!("{PREFIX}.{cluster}.{secret}")
    }
}

/// Text that is not a join token. It does not contain the text, which may be almost a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a join token: expected `{PREFIX}.CLUSTER.SECRET`, as the first server of the cluster wrote it"
)]
pub struct ParseJoinTokenError;

impl FromStr for JoinToken {
    type Err = ParseJoinTokenError;

    fn from_str(text: &str) -> Result<Self, ParseJoinTokenError> {
        let mut parts = text.trim().split('.');
        let (Some(PREFIX), Some(cluster), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseJoinTokenError);
        };
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| ParseJoinTokenError);
        let cluster = bytes(cluster)?.try_into().map_err(|_| ParseJoinTokenError)?;
        let secret = bytes(secret)?.try_into().map_err(|_| ParseJoinTokenError)?;
        Ok(Self { cluster: u128::from_be_bytes(cluster), secret })
    }
}

/// What the two ends of an authenticated connection know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// Value that only the two ends can compute.
    pub binding: [u8; 32],
    /// SHA-256 of the public key of this end.
    pub own_key: [u8; 32],
    /// SHA-256 of the public key of the other end, which has proved that it has the private one.
    pub other_key: [u8; 32],
}

/// Opens connections to servers whose keys are not known yet.
pub trait JoinTransport: Send + Sync {
    /// Opens an encrypted connection to any server at `HOST:PORT`.
    ///
    /// # Errors
    /// If the server cannot be reached, or does not take part in handshakes.
    fn connect(&self, address: &str) -> BoxFuture<'_, io::Result<(BoxStream, Channel)>>;
}

/// What a new server asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Its node id, which it has drawn.
    pub node: NodeId,
    /// How the others reach it.
    pub peer: Peer,
    /// Version of its program, for people.
    pub program: String,
}

/// What a server of the cluster answers. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinAnswer {
    /// The node is a member.
    Joined {
        /// Number of shards of the cluster.
        shards: u16,
        /// Whether the node votes; otherwise it asks again, once it has more entries.
        is_voter: bool,
        /// All members, whose connections the node must accept.
        members: Vec<(NodeId, Peer)>,
    },
    /// Another server leads, and must be asked.
    NotLeader {
        /// Address of the leader, if it is known.
        leader: Option<String>,
    },
    /// The node cannot join.
    Refused {
        /// Why not.
        reason: String,
    },
    /// The node can join later: it asks again.
    NotNow {
        /// What it waits for.
        reason: String,
    },
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The other side has another secret, or the connection has a server in between.
    #[error("the other server does not know the secret of the join token")]
    Proof,
    /// The other side has another version of the handshake.
    #[error("the other server speaks version {found} of the join handshake; this one speaks {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// The other side has sent something else.
    #[error("the other server has not answered as a server of a cluster: {reason}")]
    Unexpected {
        /// What it has sent.
        reason: String,
    },
    /// The connection failed.
    #[error("the connection to the other server failed")]
    Io(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
struct Asked {
    version: u16,
    proof: [u8; 32],
    request: JoinRequest,
}

#[derive(Serialize, Deserialize)]
struct Answered {
    version: u16,
    /// Absent if the proof of the request was wrong: then nothing is proved, and nothing is said.
    proof: Option<[u8; 32]>,
    answer: Option<JoinAnswer>,
}

/// Side of a handshake. Its name is part of the proof, so no side can send the proof of the other back.
#[derive(Debug, Clone, Copy)]
enum Side {
    Client,
    Server,
}

fn mac(secret: &[u8; 32], side: Side, binding: &[u8; 32], key: &[u8; 32]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length is valid");
    mac.update(match side {
        Side::Client => b"belfry join client 1",
        Side::Server => b"belfry join server 1",
    });
    mac.update(binding);
    mac.update(key);
    mac
}

fn proof(secret: &[u8; 32], side: Side, binding: &[u8; 32], key: &[u8; 32]) -> [u8; 32] {
    mac(secret, side, binding, key).finalize().into_bytes().into()
}

/// Compares in constant time.
fn is_proof(secret: &[u8; 32], side: Side, binding: &[u8; 32], key: &[u8; 32], proof: &[u8; 32]) -> bool {
    mac(secret, side, binding, key).verify_slice(proof).is_ok()
}

async fn send<T: Serialize + Sync>(stream: &mut BoxStream, value: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(value).expect("messages are plain data");
    frame::write(stream, &Frame { kind: JOIN, request: 0, body }).await
}

async fn receive<T: serde::de::DeserializeOwned>(
    stream: &mut BoxStream,
    bytes_max: usize,
) -> Result<T, JoinError> {
    let unexpected = |reason: &str| JoinError::Unexpected { reason: reason.to_owned() };
    let frame = frame::read_up_to(bytes_max, stream)
        .await?
        .ok_or_else(|| unexpected("it has closed the connection"))?;
    if frame.kind != JOIN {
        return Err(unexpected("it has sent another kind of message"));
    }
    message::decode(&frame.body).map_err(|error| JoinError::Unexpected { reason: error.to_string() })
}

/// Asks a server of the cluster, as a new server.
///
/// # Errors
/// See [`JoinError`]. After an error nothing that the other side said is believed.
pub async fn ask(
    mut stream: BoxStream,
    channel: &Channel,
    token: &JoinToken,
    request: JoinRequest,
) -> Result<JoinAnswer, JoinError> {
    let own = proof(&token.secret, Side::Client, &channel.binding, &channel.own_key);
    send(&mut stream, &Asked { version: VERSION, proof: own, request }).await?;
    let Answered { version, proof, answer } = receive(&mut stream, ANSWER_BYTES_MAX).await?;
    if version != VERSION {
        return Err(JoinError::Version { found: version });
    }
    let is_proved =
        |proof: &[u8; 32]| is_proof(&token.secret, Side::Server, &channel.binding, &channel.other_key, proof);
    match (proof, answer) {
        (Some(proof), Some(answer)) if is_proved(&proof) => Ok(answer),
        _ => Err(JoinError::Proof),
    }
}

/// Serves a new server. `decide` is called only for one that knows the secret.
///
/// # Errors
/// See [`JoinError`].
pub async fn serve(
    mut stream: BoxStream,
    channel: &Channel,
    secret: &[u8; 32],
    decide: impl AsyncFnOnce(JoinRequest) -> JoinAnswer,
) -> Result<(), JoinError> {
    let Asked { version, proof: theirs, request } = receive(&mut stream, REQUEST_BYTES_MAX).await?;
    let refuse = Answered { version: VERSION, proof: None, answer: None };
    if version != VERSION {
        send(&mut stream, &refuse).await?;
        return Err(JoinError::Version { found: version });
    }
    if !is_proof(secret, Side::Client, &channel.binding, &channel.other_key, &theirs) {
        send(&mut stream, &refuse).await?;
        return Err(JoinError::Proof);
    }
    let answer = decide(request).await;
    let own = proof(secret, Side::Server, &channel.binding, &channel.own_key);
    send(&mut stream, &Answered { version: VERSION, proof: Some(own), answer: Some(answer) }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_KEY: [u8; 32] = [1; 32];
    const SERVER_KEY: [u8; 32] = [2; 32];

    fn token(secret: u8) -> JoinToken {
        JoinToken { cluster: 77, secret: [secret; 32] }
    }

    fn request() -> JoinRequest {
        let peer = Peer { address: "127.0.0.1:1".into(), fingerprint: CLIENT_KEY, name: "c".into() };
        JoinRequest { node: NodeId(3), peer, program: "1.0.0".into() }
    }

    fn joined() -> JoinAnswer {
        JoinAnswer::Joined { shards: 16, is_voter: false, members: vec![(NodeId(1), Peer::default())] }
    }

    /// The two ends of a connection without a server in between.
    fn ends() -> (Channel, Channel) {
        let binding = [9; 32];
        (
            Channel { binding, own_key: CLIENT_KEY, other_key: SERVER_KEY },
            Channel { binding, own_key: SERVER_KEY, other_key: CLIENT_KEY },
        )
    }

    async fn join(
        client: Channel,
        server: Channel,
        secret: u8,
    ) -> (Result<JoinAnswer, JoinError>, Result<(), JoinError>, Option<JoinRequest>) {
        let (near, far) = tokio::io::duplex(4096);
        let mut asked = None;
        let decide = async |request| {
            asked = Some(request);
            joined()
        };
        let (token, secret) = (token(5), [secret; 32]);
        let (answer, served) = tokio::join!(
            ask(Box::new(near), &client, &token, request()),
            serve(Box::new(far), &server, &secret, decide)
        );
        (answer, served, asked)
    }

    #[tokio::test]
    async fn a_server_with_the_token_is_answered() {
        let (client, server) = ends();
        let (answer, served, asked) = join(client, server, 5).await;
        assert_eq!(answer.unwrap(), joined());
        assert_eq!(asked, Some(request()));
        served.unwrap();
    }

    #[tokio::test]
    async fn a_wrong_secret_is_refused_on_both_sides_and_learns_nothing() {
        let (client, server) = ends();
        let (answer, served, asked) = join(client, server, 6).await;
        assert!(matches!(answer, Err(JoinError::Proof)), "{answer:?}");
        assert!(matches!(served, Err(JoinError::Proof)), "{served:?}");
        assert_eq!(asked, None);
    }

    /// It has one connection to each side, so each side has another binding and another key.
    #[tokio::test]
    async fn a_server_in_between_cannot_pass_a_proof_on() {
        let (client, server) = ends();
        for other in [Channel { binding: [8; 32], ..server }, Channel { other_key: [3; 32], ..server }] {
            let (answer, _, asked) = join(client, other, 5).await;
            assert!(matches!(answer, Err(JoinError::Proof)), "{answer:?}");
            assert_eq!(asked, None);
        }
        let (answer, ..) = join(Channel { other_key: [3; 32], ..client }, server, 5).await;
        assert!(
            matches!(answer, Err(JoinError::Proof)),
            "the key of the server is not the proved one: {answer:?}"
        );
    }

    /// A stranger sends the proof of the client back as its own.
    #[tokio::test]
    async fn the_proof_of_one_side_is_not_one_of_the_other() {
        let (client, _) = ends();
        let (near, far) = tokio::io::duplex(4096);
        let reflect = async {
            let mut far: BoxStream = Box::new(far);
            let asked: Asked = receive(&mut far, REQUEST_BYTES_MAX).await.unwrap();
            let answer = Some(joined());
            send(&mut far, &Answered { version: VERSION, proof: Some(asked.proof), answer }).await.unwrap();
        };
        // The stranger has the key of the client, as far as the client can tell.
        let channel = Channel { other_key: CLIENT_KEY, ..client };
        let token = token(5);
        let (answer, ()) = tokio::join!(ask(Box::new(near), &channel, &token, request()), reflect);
        assert!(matches!(answer, Err(JoinError::Proof)), "{answer:?}");
    }

    #[tokio::test]
    async fn something_else_than_a_handshake_is_an_error() {
        let (client, server) = ends();
        let (mut near, far) = tokio::io::duplex(4096);
        let other = Frame { kind: 1, request: 0, body: vec![1, 2, 3] };
        let writing = frame::write(&mut near, &other);
        let secret = [5; 32];
        let decide = async |_| unreachable!();
        let (written, served) = tokio::join!(writing, serve(Box::new(far), &server, &secret, decide));
        written.unwrap();
        assert!(matches!(served, Err(JoinError::Unexpected { .. })), "{served:?}");
        let (near, far) = tokio::io::duplex(4096);
        drop(far);
        let token = token(5);
        assert!(ask(Box::new(near), &client, &token, request()).await.is_err());
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let token = token(200);
        let text = token.reveal();
        assert!(text.starts_with("bjt1."), "{text}");
        assert_eq!(format!("{text}\n").parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains("200"));
        for wrong in ["", "bjt1", "bjt1.a.b", "bjt2.AAAA.AAAA", &format!("{text}.x"), &text[..text.len() - 2]]
        {
            assert_eq!(wrong.parse::<JoinToken>(), Err(ParseJoinTokenError), "{wrong}");
        }
    }
}
