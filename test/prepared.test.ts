import { createHash } from 'node:crypto'
import { describe, expect, onTestFinished, test } from 'vitest'
import { isStorageAway, openPool } from '../src/db.ts'
import { type Parameter, runPrepared } from '../src/events/prepared.ts'
import { testDatabase } from './support/database.ts'
import { lineTo } from './support/line.ts'

const database = await testDatabase()

/** A pool whose statements all run on one connection. */
function poolOfOne(url = database.url) {
  const pool = openPool({ url, name: 'prepared', max: 1 })
  onTestFinished(() => pool.end())
  return pool
}

const read = (text: string, values: Parameter[]) => runPrepared(poolOfOne(), { name: 'read', text, values })

describe('a parameter arrives as it is', () => {
  test.each([
    ['of one-byte characters', 'evt_1'],
    ['of two, three and four bytes', 'é €  \u{1f600}'],
    ['with what a text form would have to escape', `"\\ {},' \n`],
    ['without characters', ''],
    ['of 21 kB in characters of three bytes', '€'.repeat(7_000)],
  ])('a text %s', async (_, text) => {
    const rows = await read(`select $1::text, octet_length($1)::text`, [text])

    expect(rows).toEqual([[text, String(Buffer.from(text).length)]])
  })

  test.each([
    ['1970-01-01T00:00:00.001Z', '1970-01-01 00:00:00.001'],
    ['1999-12-31T23:59:59.999Z', '1999-12-31 23:59:59.999'],
    ['2000-01-01T00:00:00.000Z', '2000-01-01 00:00:00'],
    ['9999-12-31T23:59:59.999Z', '9999-12-31 23:59:59.999'],
  ])('the time %s', async (time, stored) => {
    expect(await read(`select ($1::timestamptz at time zone 'UTC')::text`, [new Date(time)])).toEqual([[stored]])
  })

  test('numbers, truth values and nothing', async () => {
    const rows = await read(`select ($1::smallint + 1)::text, (not $2::bool)::text, ($3::bool is null)::text`, [-7, true, null])

    expect(rows).toEqual([['-6', 'false', 'true']])
  })

  test('the number with the longest text', async () => {
    const longest = -1.2345678901234567e-6

    const rows = await read(
      `select ${Array.from({ length: 64 }, (_, at) => `($${at + 1}::float8)::text`).join()}`,
      Array(64).fill(longest),
    )

    expect(rows[0]?.map(Number)).toEqual(Array(64).fill(longest))
  })

  test.each([0, 1, 16_383, 16_384, 16_385, 1_048_576])('bytes, %i of them between others', async (size) => {
    const bytes = Buffer.alloc(size, Buffer.from([0, 255, 1, 92, 39, 128]))
    const digest = (value: Buffer) => createHash('sha256').update(value).digest('hex')
    const hex = (number: number) => `encode(sha256($${number}::bytea), 'hex')`
    const small = Buffer.from([0])

    const rows = await read(`select $1::text, ${hex(2)}, ${hex(3)}, ${hex(4)}, $5::text`, ['a', bytes, small, bytes, 'z'])

    expect(rows).toEqual([['a', digest(bytes), digest(small), digest(bytes), 'z']])
  })
})

test('a statement is prepared once for a connection, and again for the next', async () => {
  const pool = poolOfOne()
  const statement = { name: 'counted', text: 'select $1::text', values: ['a'] }
  const count = async () => {
    const { rows } = await pool.query(
      `select (generic_plans + custom_plans)::int as runs from pg_prepared_statements where name = 'counted'`,
    )
    return rows
  }

  await Promise.all([runPrepared(pool, statement), runPrepared(pool, statement)])
  expect(await count()).toEqual([{ runs: 2 }])

  const client = await pool.connect()
  client.release(true)
  await runPrepared(pool, statement)
  expect(await count()).toEqual([{ runs: 1 }])
})

test('what the database refuses, at once or as it is prepared, rejects with its error, and the next one runs', async () => {
  const pool = poolOfOne()
  const run = (name: string, text: string) => runPrepared(pool, { name, text, values: ['0'] })

  await expect(run('divide', 'select (1 / $1::int)::text')).rejects.toMatchObject({ code: '22012' })
  await expect(run('none', 'select $1::text from nowhere')).rejects.toMatchObject({ code: '42P01' })
  expect(await run('text', 'select $1::text')).toEqual([['0']])
  await expect(run('text', `select $1 || '1'`)).rejects.toThrow('text is another prepared statement')
  expect(await run('text', 'select $1::text')).toEqual([['0']])
})

test('what cannot be written rejects, and the next one runs', async () => {
  const pool = poolOfOne()
  const run = (value: Date) => runPrepared(pool, { name: 'time', text: 'select $1::timestamptz::text', values: [value] })

  await expect(run(new Date(Number.NaN))).rejects.toThrow(RangeError)
  expect(await run(new Date())).toHaveLength(1)
})

test('a connection that breaks while a statement runs rejects it, and the next one runs', async () => {
  const line = await lineTo(database.url)
  const pool = poolOfOne(line.url)
  const run = (text: string) => runPrepared(pool, { name: 'echo', text: 'select $1::text', values: [text] })
  await run('before')

  line.loseNextAnswer()
  const error = await run('lost').catch((failed: unknown) => failed)

  expect(error).toSatisfy(isStorageAway)
  expect(await run('after')).toEqual([['after']])
})
