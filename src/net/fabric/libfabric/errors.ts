import { HeddleError } from '../../../base/errors.js';

/** A libfabric call, or an operation that libfabric completed with an error, failed. */
export class FabricError extends HeddleError {
  constructor(
    /** What failed: a libfabric call or an operation of the engine. */
    readonly operation: string,
    /** libfabric's error number, positive. */
    readonly errno: number,
    /** libfabric's own words for it. */
    reason: string,
    /** The name of the peer that the operation was for, where it was for one. */
    readonly peer: string | null = null,
  ) {
    super('HEDDLE_FABRIC', `${operation} failed: ${reason} (${errno})`);
  }
}
