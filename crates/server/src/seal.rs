//! Encryption of secrets that the store keeps.
//!
//! Each text is encrypted with AES-256-GCM under a key of its own, which HKDF-SHA256 derives from the key of the file and a
//! random salt. So a nonce never repeats, whatever the number of texts. The context, such as the name of a channel, is
//! authenticated too: a text cannot be moved to another object. The key file and the store together are enough to read the texts.
//!
//! The format is `v1.KEY.DATA`: the first 8 digits of the SHA-256 of the key, and base64 of salt and ciphertext.
//!
//! # Rotation
//! The file has one key per line. The first one encrypts; all of them decrypt. To rotate the key, add a new first line on all
//! servers, after all of them know the new key as a further line. A text gets the new key when it is written again. A server
//! without the file gets it from another server of its cluster (`between_servers`).
//!
//! Callers: alert channels and ping URLs (`alerts`), second factors and logins (`api`), and secrets of jobs (`secrets`).

use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

const KEY_LEN: usize = 32;
const SALT_LEN: usize = 32;

/// Why the key could not be read, or a text not be decrypted.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file cannot be read or created.
    #[error("cannot read or create the key file `{}`", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file does not contain a key.
    #[error("the key file `{}` is invalid: expected one key per line, each as base64 of 32 bytes", path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
    },
    /// The text was encrypted with a key that is not in the file.
    #[error("the secret was encrypted with another key (`{found}`) than that of this server (`{expected}`)")]
    OtherKey {
        /// Beginning of the hash of the key of the text.
        found: String,
        /// Beginning of the hash of the first key of this server.
        expected: String,
    },
    /// The text is damaged, or belongs to another object.
    #[error("the encrypted secret is damaged")]
    Damaged,
}

impl SealError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::File { .. } => "check that the server's user can read and write the folder of the file",
            Self::Invalid { .. } => {
                "restore the file from a backup; without it, the secrets must be entered again"
            }
            Self::OtherKey { .. } => {
                "give all servers the same `server.secret_key_file`, or enter the secret again"
            }
            Self::Damaged => "enter the secret again",
        }
    }
}

/// Encrypts and decrypts secrets.
pub struct Sealer {
    /// Encrypts, and decrypts.
    current: Key,
    /// Decrypt only.
    older: Vec<Key>,
}

struct Key {
    bytes: [u8; KEY_LEN],
    /// Beginning of the hash of the key.
    id: String,
}

impl Key {
    fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self { bytes, id: crate::hash::sha256_hex(&bytes)[..8].to_owned() }
    }

    fn parse(line: &str) -> Option<Self> {
        BASE64.decode(line.trim()).ok().and_then(|bytes| bytes.try_into().ok()).map(Self::new)
    }

    /// Derives the key of one text.
    fn derive(&self, salt: &[u8]) -> LessSafeKey {
        let mut key = [0; KEY_LEN];
        let derived = Salt::new(HKDF_SHA256, salt).extract(&self.bytes);
        let filled = derived.expand(&[b"belfry secret v1"], HKDF_SHA256).and_then(|okm| okm.fill(&mut key));
        filled.expect("HKDF-SHA256 returns 32 bytes");
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("the key has 32 bytes"))
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("key_id", &self.key_id()).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Reads the keys of a file; creates the file with a random key if it is missing.
    ///
    /// # Errors
    /// [`SealError::File`] or [`SealError::Invalid`].
    pub fn open(path: &Path) -> Result<Self, SealError> {
        let failed = |source| SealError::File { path: path.to_owned(), source };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                create(path).and_then(|()| std::fs::read_to_string(path)).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let mut keys = lines.map(Key::parse).collect::<Option<Vec<_>>>().unwrap_or_default().into_iter();
        let current = keys.next().ok_or_else(|| SealError::Invalid { path: path.to_owned() })?;
        Ok(Self { current, older: keys.collect() })
    }

    /// Encrypts with a given key.
    pub fn with_key(key: [u8; KEY_LEN]) -> Self {
        Self { current: Key::new(key), older: Vec::new() }
    }

    /// Returns the beginning of the hash of the key that encrypts, which identifies it.
    pub fn key_id(&self) -> &str {
        &self.current.id
    }

    /// Returns whether a text was encrypted with the key that encrypts now.
    pub fn is_current(&self, sealed: &str) -> bool {
        sealed.split('.').nth(1) == Some(self.key_id())
    }

    /// Whether this server can decrypt what another one encrypts with the key of this id.
    pub(crate) fn knows(&self, key_id: &str) -> bool {
        self.keys().any(|key| key.id == key_id)
    }

    /// Returns the content of the key file, for another server of the cluster.
    pub(crate) fn file_text(&self) -> String {
        self.keys().map(|key| format!("{}\n", BASE64.encode(key.bytes))).collect()
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.current).chain(&self.older)
    }

    /// Encrypts a text for a context.
    pub fn seal(&self, context: &str, text: &str) -> String {
        let salt: [u8; SALT_LEN] = rand::random();
        let mut data = text.as_bytes().to_vec();
        let sealed =
            self.current.derive(&salt).seal_in_place_append_tag(nonce(), Aad::from(context), &mut data);
        sealed.expect("a secret is shorter than 64 GiB");
        let mut out = salt.to_vec();
        out.extend_from_slice(&data);
        format!("v1.{}.{}", self.key_id(), BASE64.encode(out))
    }

    /// Decrypts a text of a context.
    ///
    /// # Errors
    /// [`SealError::OtherKey`] or [`SealError::Damaged`].
    pub fn open_text(&self, context: &str, sealed: &str) -> Result<String, SealError> {
        let mut parts = sealed.splitn(3, '.');
        let (Some("v1"), Some(id), Some(data)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(SealError::Damaged);
        };
        let key = self.keys().find(|key| key.id == id);
        let other = || SealError::OtherKey { found: id.to_owned(), expected: self.key_id().to_owned() };
        let key = key.ok_or_else(other)?;
        let mut salt = BASE64.decode(data).map_err(|_| SealError::Damaged)?;
        if salt.len() < SALT_LEN {
            return Err(SealError::Damaged);
        }
        let mut data = salt.split_off(SALT_LEN);
        let opened = key.derive(&salt).open_in_place(nonce(), Aad::from(context), &mut data);
        let text = opened.map_err(|_| SealError::Damaged)?;
        String::from_utf8(text.to_vec()).map_err(|_| SealError::Damaged)
    }
}

/// Creates a file with a random key, unless another process does so at the same time.
fn create(path: &Path) -> std::io::Result<()> {
    let text = format!("{}\n", BASE64.encode(rand::random::<[u8; KEY_LEN]>()));
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{:016x}", rand::random::<u64>()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    // A link appears with the whole content, and replaces no other file.
    let linked = written.and_then(|()| std::fs::hard_link(&new, path));
    std::fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        linked => linked?,
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

/// Each key encrypts one text, so the nonce is constant.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_decrypted_only_with_its_key_and_for_its_object() {
        let sealer = Sealer::with_key([7; KEY_LEN]);
        let sealed = sealer.seal("channel/default/ops", "geheim");
        assert!(!sealed.contains("geheim") && sealed != sealer.seal("channel/default/ops", "geheim"));
        assert_eq!(sealer.open_text("channel/default/ops", &sealed).unwrap(), "geheim");
        assert!(matches!(sealer.open_text("channel/default/dev", &sealed), Err(SealError::Damaged)));
        let other = Sealer::with_key([8; KEY_LEN]);
        assert!(matches!(other.open_text("channel/default/ops", &sealed), Err(SealError::OtherKey { .. })));
        for damaged in
            ["", "v1", "v1..", &format!("v1.{}.AAAA", sealer.key_id()), &sealed[..sealed.len() - 4]]
        {
            assert!(sealer.open_text("channel/default/ops", damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn a_key_file_is_created_once_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        let first = Sealer::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let sealed = first.seal("a", "text");
        assert_eq!(Sealer::open(&path).unwrap().open_text("a", &sealed).unwrap(), "text");
        for wrong in ["short", "", "\n"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(matches!(Sealer::open(&path), Err(SealError::Invalid { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn the_first_key_of_a_file_encrypts_and_all_of_them_decrypt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        let (old, new) = (BASE64.encode([1; KEY_LEN]), BASE64.encode([2; KEY_LEN]));
        std::fs::write(&path, &old).unwrap();
        let before = Sealer::open(&path).unwrap().seal("a", "text");
        std::fs::write(&path, format!("{new}\n{old}\n")).unwrap();
        let both = Sealer::open(&path).unwrap();
        assert_eq!(both.open_text("a", &before).unwrap(), "text");
        assert!(!both.is_current(&before));
        let after = both.seal("a", "text");
        assert!(both.is_current(&after));
        std::fs::write(&path, &new).unwrap();
        let rotated = Sealer::open(&path).unwrap();
        assert_eq!(rotated.open_text("a", &after).unwrap(), "text");
        assert!(matches!(rotated.open_text("a", &before), Err(SealError::OtherKey { .. })));
    }
}
