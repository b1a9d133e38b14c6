//! Writes a trace from entries that are there, one after the other; [`super::Recorder`] is for those that
//! come.

use std::io::Write;

use super::block::Block;
use super::event::Entry;
use super::header::Header;

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    block: Block,
}

impl<W: Write> Writer<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(mut sink: W, header: &Header) -> std::io::Result<Self> {
        sink.write_all(&header.encode()?)?;
        Ok(Self { sink, block: Block::default() })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The sink's.
    pub fn push(&mut self, entry: &Entry) -> std::io::Result<()> {
        if self.block.is_full() {
            self.write_block()?;
        }
        self.block.push(entry);
        Ok(())
    }

    /// Writes what is left; returns what was written to.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> std::io::Result<W> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn write_block(&mut self) -> std::io::Result<()> {
        self.sink.write_all(self.block.finish())?;
        self.block.clear();
        Ok(())
    }
}
