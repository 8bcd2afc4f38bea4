import { expect, test } from 'vitest'
import { isStorageAway, openPool } from '../src/db.ts'
import { testDatabase } from './support/database.ts'

const { pool, url } = await testDatabase()

test('C-48 a connection that is ended while it is handed out ends nothing else, and its query says that storage is away', async () => {
  const client = await pool.connect()
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')

  // With no listener of the pool's own, this event alone would end the process.
  const told = new Promise<void>((done) => client.once('end', () => done()))
  await pool.query('select pg_terminate_backend($1)', [rows[0]?.pid])
  await told
  const error = await client.query('select 1').catch((thrown: unknown) => thrown)
  client.release(true)

  expect(isStorageAway(error)).toBe(true)
  expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
})

test('I19 a pool for those who look takes one processor for a statement, and ends what takes too long as storage that is away', async () => {
  const reads = openPool({ url, name: 'test-reads', max: 3, statementTimeout: 50, isFrugal: true })
  try {
    const { rows } = await reads.query(
      `select current_setting('max_parallel_workers_per_gather') as workers, current_setting('jit') as jit, current_setting('statement_timeout') as ends`,
    )
    const error = await reads.query('select pg_sleep(10)').catch((thrown: unknown) => thrown)

    expect(rows).toEqual([{ workers: '0', jit: 'off', ends: '50ms' }])
    expect(error).toMatchObject({ code: '57014' })
    expect(isStorageAway(error)).toBe(true)
  } finally {
    await reads.end()
  }
})
