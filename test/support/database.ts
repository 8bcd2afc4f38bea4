import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterAll, inject } from 'vitest'
import { openPool } from '../../src/db.ts'

export interface TestDatabase {
  url: string
  pool: pg.Pool
}

/** A database of its own for this test file, copied from the migrated template and dropped at the end. */
export async function testDatabase(options: { max?: number } = {}): Promise<TestDatabase> {
  const server = inject('databaseUrl')
  const name = `test_${randomBytes(6).toString('hex')}`
  await administer(server, `create database ${name} template template`)
  const url = server.replace(/\/oncehook$/, `/${name}`)
  const pool = openPool({ url, name: 'test', max: options.max ?? 20, connectionTimeout: 10_000 })
  afterAll(async () => {
    await pool.end()
    await administer(server, `drop database ${name} with (force)`)
  })
  return { url, pool }
}

async function administer(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
