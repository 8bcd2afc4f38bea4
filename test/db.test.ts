import { expect, test } from 'vitest'
import { isStorageAway } from '../src/db.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

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
