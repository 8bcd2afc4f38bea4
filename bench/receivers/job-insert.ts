import { PgBoss } from 'pg-boss'

/** Installs a queue of the job library and gives its own statement for inserting jobs, whose one parameter is their JSON. */
export async function insertOfJobs(databaseUrl: string): Promise<string> {
  const boss = new PgBoss({ connectionString: databaseUrl, max: 1, supervise: false, schedule: false })
  await boss.start()
  await boss.createQueue('event')
  let text = ''
  const executeSql = async (captured: string) => {
    text = captured
    return { rows: [] }
  }
  await boss.insert('event', [{ data: {} }], { db: { executeSql } })
  await boss.stop({ graceful: false })
  return text
}
