import pg from 'pg'
import type { Db } from '../db.ts'

/** Rows that wait in memory while the database is away; what a further row would count is lost. */
const MOST_ROWS = 10_000

/** Rows that add up in memory by their key until they are written; `addTo` changes the row that is held. */
export function createSums<Row>(keyOf: (row: Row) => string, addTo: (held: Row, row: Row) => void) {
  let rows = new Map<string, Row>()
  const add = (row: Row) => {
    const key = keyOf(row)
    const held = rows.get(key)
    if (held !== undefined) addTo(held, row)
    else if (rows.size < MOST_ROWS) rows.set(key, row)
  }
  return {
    add,
    isEmpty: () => rows.size === 0,
    async flush(db: Db, write: (db: Db, rows: readonly Row[]) => Promise<void>): Promise<void> {
      if (rows.size === 0) return
      const taken = [...rows.values()]
      rows = new Map()
      try {
        await write(db, taken)
      } catch (error) {
        if (isSurelyNotWritten(error)) taken.forEach(add)
        throw error
      }
    },
  }
}

/**
 * Only what the database itself has refused is counted again with the next flush. After a connection that broke the commit is in
 * doubt, and a few seconds are lost rather than counted twice: a number too low hides no event, as those have rows of their own,
 * while one too high would send people after refusals that never were.
 */
function isSurelyNotWritten(error: unknown): boolean {
  return error instanceof pg.DatabaseError && !error.code?.startsWith('57P')
}
