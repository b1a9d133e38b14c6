//! Datagrams between device backend and aggregator: any bytes are one message or none, and a message has one
//! form.

use gpuvmk::aggregator::wire::{
    MAX_REPLY_BYTES, MAX_REQUEST_BYTES, decode_reply, decode_request, encode_reply, encode_request,
};

/// Reads `data` as a request and as a reply.
pub fn run(data: &[u8]) {
    let mut bytes = Vec::new();
    match decode_request(data) {
        Ok(request) => {
            encode_request(&request, &mut bytes);
            assert!(bytes.len() <= MAX_REQUEST_BYTES, "a request longer than any may be");
            assert_eq!(decode_request(&bytes).as_ref(), Ok(&request), "a request changes on its way");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match decode_reply(data) {
        Ok(reply) => {
            encode_reply(&reply, &mut bytes);
            assert!(bytes.len() <= MAX_REPLY_BYTES, "a reply longer than any may be");
            assert_eq!(decode_reply(&bytes).as_ref(), Ok(&reply), "a reply changes on its way");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
