module inferwire/scripted-server

go 1.19
