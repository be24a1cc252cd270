"""Run by Alembic, on the connection that `store.migrate` gives it."""

from alembic import context

from dodona.store.db.migrate import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,
    transactional_ddl=True,
    version_table=VERSION_TABLE,  # a shared database may have an alembic_version of another
)
context.run_migrations()
