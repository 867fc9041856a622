from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0012_span_sizes")]

    operations = [
        migrations.AlterField(
            model_name="chatmetadata", name="digest", field=models.CharField(max_length=32)
        ),
        migrations.AddIndex(
            model_name="chatmetadata",
            index=models.Index(fields=["digest", "chat"], name="chats_of_metadata"),
        ),
        migrations.AddIndex(
            model_name="conversation",
            index=models.Index(fields=["created_at"], name="conversation_of_time"),
        ),
        migrations.AddIndex(
            model_name="storedchat",
            index=models.Index(
                fields=["model", "project_id", "created_at", "id"], name="chat_of_model"
            ),
        ),
        migrations.AddIndex(
            model_name="storedchat", index=models.Index(fields=["created_at"], name="chat_of_time")
        ),
        migrations.AddIndex(
            model_name="storedresponse",
            index=models.Index(fields=["created_at"], name="response_of_time"),
        ),
    ]
