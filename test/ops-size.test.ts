import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Case, casesOf } from '../bench/ops-cases.ts'
import { recordingDb, scansOf } from '../bench/ops-plans.ts'
import { fillHistory } from '../bench/ops-rows.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()
const now = new Date('2026-11-29T14:00:00Z')
// Of rows that don't matter here: the plan is asked for, not the answer.
const cases = casesOf({
  now,
  key: 'invoice:INV-150:paid',
  recipient: 'ada.123456@example.com',
  messageId: 'm_1',
  eventId: 'evt_1',
  eventRow: '451',
  openKey: 'invoice:INV-3:paid',
})

let client: pg.PoolClient
beforeAll(async () => {
  client = await pool.connect()
  await fillHistory(client, 1_000, now, () => undefined)
  await client.query('analyze')
  // A small table is read from end to end although it has an index; now only what has none is.
  await client.query('set enable_seqscan = off')
})
afterAll(() => client.release(true))

async function scannedBy({ run }: Pick<Case, 'run'>): Promise<string[]> {
  const { db, statements } = recordingDb(client)
  await run(db)
  expect(statements.length).toBeGreaterThan(0)
  const scanned: string[] = []
  for (const statement of statements) scanned.push(...(await scansOf(client, statement)))
  return scanned
}

describe('I19 no question of the page or the API reads a table from end to end', () => {
  test.each(cases)('$name', async (one) => {
    expect(await scannedBy(one)).toEqual([])
  })

  test('and one that had to is noticed', async () => {
    expect(await scannedBy({ run: (db) => db.query(`select count(*) from email_sends where last_error = 'x'`) })).toEqual([
      'email_sends',
    ])
  })
})
