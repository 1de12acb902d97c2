//! The Merkle tree over blocks of lines (RFC 6962, 2.1). Only its right edge is kept.

use aws_lc_rs::digest::{Context, SHA256};
use fanlight_protocol::digest::{finished, sha256};

/// A hash of the tree or of a block.
pub(crate) type Hash = [u8; 32];

/// The right edge of the tree: the heads of its complete subtrees, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    size: u64,
    heads: Vec<Hash>,
}

impl Edge {
    /// An edge of `size` blocks with these heads; `None` if the numbers do not match.
    pub(crate) fn new(size: u64, heads: Vec<Hash>) -> Option<Self> {
        (u32::try_from(heads.len()) == Ok(size.count_ones())).then_some(Self { size, heads })
    }

    /// The number of blocks.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The heads.
    pub(crate) fn heads(&self) -> &[Hash] {
        &self.heads
    }

    /// Adds a block.
    pub(crate) fn push(&mut self, block: Hash) {
        let mut head = block;
        // Two complete subtrees of the same size become one of twice the size.
        let mut full = self.size;
        while full & 1 == 1 {
            let Some(left) = self.heads.pop() else { break };
            head = joined(&left, &head);
            full >>= 1;
        }
        self.heads.push(head);
        self.size += 1;
    }

    /// The head of the whole tree.
    pub(crate) fn root(&self) -> Hash {
        let mut heads = self.heads.iter().rev();
        let Some(last) = heads.next() else {
            return hash(b"");
        };
        heads.fold(*last, |right, left| joined(left, &right))
    }
}

/// The hash of a text.
pub(crate) fn hash(text: &[u8]) -> Hash {
    sha256([text])
}

/// The hash of two subtrees.
fn joined(left: &Hash, right: &Hash) -> Hash {
    sha256([&[1], &left[..], right])
}

/// The hash of a block: of a zero byte and its lines, separated by line ends.
#[derive(Clone)]
pub(crate) struct BlockHash(Context);

impl BlockHash {
    /// The hash of a block that begins with `line`.
    pub(crate) fn begin(line: &[u8]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(&[0]);
        context.update(line);
        Self(context)
    }

    /// Adds a further line.
    pub(crate) fn push(&mut self, line: &[u8]) {
        self.0.update(b"\n");
        self.0.update(line);
    }

    /// The finished hash.
    pub(crate) fn finish(self) -> Hash {
        finished(self.0)
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    #[test]
    fn roots_are_those_of_certificate_transparency() {
        // The test vectors of the reference implementation of RFC 6962.
        let leaves: [&[u8]; 8] = [
            &[],
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[
                0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d,
                0x6e, 0x6f,
            ],
        ];
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut edge = Edge::default();
        assert_eq!(
            HEXLOWER.encode(&edge.root()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for (leaf, root) in leaves.into_iter().zip(roots) {
            edge.push(BlockHash::begin(leaf).finish());
            assert_eq!(HEXLOWER.encode(&edge.root()), root, "{}", edge.size());
            assert_eq!(
                Edge::new(edge.size(), edge.heads().to_vec()),
                Some(edge.clone())
            );
        }
    }
}
