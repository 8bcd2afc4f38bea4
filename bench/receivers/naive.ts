import express from 'express'
import pg from 'pg'
import { insertOfJobs } from './job-insert.ts'
import { listen } from './listen.ts'
import { isSignedByStripe } from './verify.ts'

// What a careful team writes first: verify, then one prepared insert per request on a pool of ten, with `--job` also a job in the
// same transaction, by the job library's own statement, prepared too.
const secret = process.env.STRIPE_WEBHOOK_SECRETS ?? ''
const databaseUrl = process.env.DATABASE_URL ?? ''
const jobInsert = process.argv.includes('--job') ? await insertOfJobs(databaseUrl) : undefined
const pool = new pg.Pool({ connectionString: databaseUrl, max: 10 })
// Without listeners a restart of the database would end the process.
pool.on('error', () => undefined)
pool.on('connect', (client) => client.on('error', () => undefined))
await pool.query(`create table if not exists events (
  id bigint generated always as identity primary key,
  source text not null, event_id text not null, type text, headers jsonb not null, body bytea not null,
  received_at timestamptz not null default now(), unique (source, event_id))`)
const app = express().disable('x-powered-by').set('etag', false)

app.post('/webhooks/:source', express.raw({ type: '*/*', limit: '1mb' }), async (req, res) => {
  if (!isSignedByStripe(req.headers['stripe-signature'], req.body, secret)) return void res.status(401).end()
  const { id, type } = JSON.parse(req.body.toString())
  const { 'content-type': contentType, 'user-agent': agent } = req.headers
  const headers = JSON.stringify({ 'content-type': contentType, 'user-agent': agent })
  const row = [req.params.source, id, type, headers, req.body]
  const isNew = jobInsert === undefined ? await insert(pool, row) : await insertWithJob(jobInsert, row)
  const status = isNew ? 'accepted' : 'duplicate'
  res.json({ status, events: [{ id, type, status }] })
})
listen(app)

async function insert(db: Pick<pg.Pool, 'query'>, values: unknown[]): Promise<boolean> {
  const { rowCount } = await db.query({
    name: 'insert-event',
    text: `insert into events (source, event_id, type, headers, body) values ($1, $2, $3, $4, $5)
      on conflict (source, event_id) do nothing`,
    values,
  })
  return rowCount === 1
}

async function insertWithJob(text: string, row: unknown[]): Promise<boolean> {
  const client = await pool.connect()
  try {
    await client.query('begin')
    const isNew = await insert(client as unknown as pg.Pool, row) // the same method, with one overload less
    if (isNew) await client.query({ name: 'insert-job', text, values: [JSON.stringify([{ data: { event: row[1] } }])] })
    await client.query('commit')
    client.release()
    return isNew
  } catch (error) {
    client.release(true)
    throw error
  }
}
