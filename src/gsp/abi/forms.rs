//! How parameters become values, and values answers.

use super::status::Status;

/// Reads parameters of the table's size. The error is the status for the driver.
pub type Read<T> = fn(&[u8]) -> Result<T, Status>;

/// Writes an answer over parameters of the size that the table says.
pub type Write<T> = fn(&T, &mut [u8]);

/// Writes an answer that follows from the question too, over it. The error is the status for the driver.
pub type Fill<T> = fn(&T, &mut [u8]) -> Result<(), Status>;
