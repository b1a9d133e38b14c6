//! The trace reader: any file gives records that can be shown and written again, then an end or an error.

use gpuvmk::chip::register_sets::ALL;
use gpuvmk::chip::registers::Reg;
use gpuvmk::trace::record::MAGIC;
use gpuvmk::trace::{Reader, TraceError, decode};

/// Reads `data` as a trace.
pub fn run(data: &[u8]) {
    let Ok(reader) = Reader::new(data) else { return };
    let mut again = MAGIC.to_vec();
    let mut damaged = false;
    for record in reader {
        match record {
            Ok(record) => {
                for set in ALL {
                    let names = |reg: Reg| set.definition(reg);
                    assert!(!decode::line(&record, &names).is_empty());
                }
                again.extend(record.encode());
            }
            Err(TraceError::CutOff { offset }) => {
                let offset = usize::try_from(offset).expect("an offset in the file");
                assert!(offset < data.len(), "the cut is named behind the end");
                damaged = true;
            }
            Err(_) => damaged = true,
        }
    }
    assert!(damaged || again == data, "what was read is not what is written");
}
