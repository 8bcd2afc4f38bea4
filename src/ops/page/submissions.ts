import type { Db } from '../../db.ts'
import type { Notice } from './shell.ts'

/** What became of a form: `first` is to be carried out now, `answered` was before, `running` has begun and not ended, perhaps never will. */
export type Submission = { outcome: 'first' } | { outcome: 'running' } | { outcome: 'answered'; location: string }

/**
 * Takes the ID of a form, which counts once; of two at the same time one is the first. Another person's form, or that of another action,
 * is not answered.
 */
export async function takeSubmission(
  db: Db,
  { form, person, action }: { form: string; person: string; action: string },
): Promise<Submission> {
  const given = [form, person, action]
  const { rowCount } = await db.query(
    'insert into form_submissions (id, person, action) values ($1, $2, $3) on conflict (id) do nothing',
    given,
  )
  if (rowCount === 1) return { outcome: 'first' }
  const { rows } = await db.query<{ location: string | null }>(
    'select location from form_submissions where id = $1 and person = $2 and action = $3',
    given,
  )
  const location = rows[0]?.location
  return typeof location === 'string' ? { outcome: 'answered', location } : { outcome: 'running' }
}

/** Keeps the answer of a form for its repeats and for the page that it leads to. */
export async function answerSubmission(db: Db, form: string, location: string, notice: Notice | undefined): Promise<void> {
  await db.query('update form_submissions set location = $2, notice = $3 where id = $1 and location is null', [
    form,
    location,
    notice === undefined ? null : JSON.stringify(notice),
  ])
}

/** Frees the ID of a form that changed nothing, so that it can be sent again as it is. */
export async function freeSubmission(db: Db, form: string): Promise<void> {
  await db.query('delete from form_submissions where id = $1 and location is null', [form])
}

/** Deletes forms that nobody sends again. */
export async function forgetOldSubmissions(db: Db): Promise<number> {
  const { rowCount } = await db.query(`delete from form_submissions where at < now() - interval '2 days'`)
  return rowCount ?? 0
}
